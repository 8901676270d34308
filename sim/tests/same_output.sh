#!/bin/sh
# same_output.sh FILE COMMAND...: the command prints exactly the file.
file=$1
shift
"$@" | cmp - "$file"
