# bash completion for weft(1). Commands and options come from weft's own help, so they are always those of this build.

_weft_options() {
	"$1" help "$2" 2>/dev/null | sed -n 's/^  \(--[a-z-]*\).*/\1/p'
}

_weft() {
	local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} weft=${COMP_WORDS[0]}
	local commands
	COMPREPLY=()
	if [ "$COMP_CWORD" -eq 1 ] || { [ "$COMP_CWORD" -eq 2 ] && [ "$previous" = help ]; }; then
		commands=$("$weft" --help 2>/dev/null | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p')
		[ "$previous" = help ] || commands="$commands --help --version"
		mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$word")
		return
	fi
	case $previous in
	--op)
		mapfile -t COMPREPLY < <(compgen -W "pages write read scatter send call" -- "$word")
		return
		;;
	--provider)
		mapfile -t COMPREPLY < <(compgen -W "efa verbs tcp shm" -- "$word")
		return
		;;
	--rails | --avoid)
		mapfile -t COMPREPLY < <(compgen -W "$(ls /sys/class/net /sys/class/infiniband 2>/dev/null | grep -v :)" -- "$word")
		return
		;;
	--sim)
		mapfile -t COMPREPLY < <(compgen -W "p5 p5en p6-b200 p6-b300" -- "$word")
		return
		;;
	--require)
		mapfile -t COMPREPLY < <(compgen -W "nothing efa verbs" -- "$word")
		return
		;;
	sim)
		mapfile -t COMPREPLY < <(compgen -W "machines knobs faults set clear link --json --help" -- "$word")
		return
		;;
	faults | set | clear | link)
		mapfile -t COMPREPLY < <(compgen -f -- "$word")
		return
		;;
	--kill-rail | --revive-rail)
		mapfile -t COMPREPLY < <(compgen -W "0@1s 0@3s 3@1s 3@3s" -- "$word")
		return
		;;
	--rail-limit | --peer-limit)
		mapfile -t COMPREPLY < <(compgen -W "100ms 300ms 1s 3s" -- "$word")
		return
		;;
	--xml | --svg | --groups)
		mapfile -t COMPREPLY < <(compgen -f -- "$word")
		return
		;;
	esac
	case $word in
	-*) mapfile -t COMPREPLY < <(compgen -W "$(_weft_options "$weft" "${COMP_WORDS[1]}")" -- "$word") ;;
	*) [ "${COMP_WORDS[1]}" = bench ] && mapfile -t COMPREPLY < <(compgen -A hostname -- "$word") ;;
	esac
}
complete -F _weft weft
