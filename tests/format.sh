#!/bin/sh
# format.sh SOURCE: every C file is formatted with the tree's .clang-format. Other versions of clang-format read that file
# differently, so any other than Debian 12's is skipped (77).
set -u
cd "$1" || exit 1
wanted=14
tool=$(command -v clang-format-$wanted || command -v clang-format) || {
	echo "SKIPPED: no clang-format here (Debian: apt-get install clang-format)"
	exit 77
}
version=$("$tool" --version | sed -n 's/.*version \([0-9]*\)\..*/\1/p')
[ "$version" = $wanted ] || {
	echo "SKIPPED: $tool is version $version; the tree is formatted with version $wanted"
	exit 77
}
files=$(find include src tools sim tests bench examples journey -name '*.[ch]') || exit 1
[ -n "$files" ] || exit 1
# shellcheck disable=SC2086 # no name here holds a blank
"$tool" --dry-run -Werror $files || {
	echo "Run: make format"
	exit 1
}
