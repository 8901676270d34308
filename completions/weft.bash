# bash completion for weft(1). Commands, options and values come from the tables of the weft that is completed (--complete).

_weft_lines() { # WEFT [COMMAND]
	local weft=$1
	shift
	"$weft" "$@" --complete 2>/dev/null
}

_weft_values() { # WEFT ARGUMENT CHOICES WORD: what an option takes
	case $2 in
	FILE) compgen -f -- "$4" ;;
	*NICS) compgen -W "$(ls /sys/class/net /sys/class/infiniband 2>/dev/null | grep -v :)" -- "$4" ;;
	'NAME[,'*) compgen -W "$("$1" sim machines 2>/dev/null | cut -d' ' -f1)" -- "$4" ;;
	*) compgen -W "$3" -- "$4" ;;
	esac
}

_weft_files() { # what is offered are files: a folder is entered, not ended by a space
	compopt -o filenames 2>/dev/null || true # there is no option to set when the function is called by hand
}

_weft() {
	local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} weft=${COMP_WORDS[0]}
	local command=${COMP_WORDS[1]} lines line argument choices
	COMPREPLY=()
	if [ "$COMP_CWORD" -eq 1 ] || { [ "$COMP_CWORD" -eq 2 ] && [ "$command" = help ]; }; then
		mapfile -t COMPREPLY < <(compgen -W "$(_weft_lines "$weft" | cut -f1)" -- "$word")
		return
	fi
	lines=$(_weft_lines "$weft" "$command")
	case $previous in
	--*)
		# A tab is white space to read, which would fold empty fields.
		line=$(printf '%s\n' "$lines" | tr '\t' '\037' | grep -F -m1 -- "$previous"$'\037')
		IFS=$'\037' read -r _ argument choices _ <<<"$line"
		if [ -n "$argument" ]; then
			[ "$argument" = FILE ] && _weft_files
			mapfile -t COMPREPLY < <(_weft_values "$weft" "$argument" "$choices" "$word")
			return
		fi
		;;
	faults | set | clear | link)
		[ "$command" = sim ] && _weft_files && mapfile -t COMPREPLY < <(compgen -f -- "$word") && return
		;;
	esac
	mapfile -t COMPREPLY < <(compgen -W "$(printf '%s\n' "$lines" | cut -f1)" -- "$word")
	case $command:$word in
	bench:-*) ;;
	bench:*) mapfile -t COMPREPLY < <(compgen -A hostname -- "$word") ;;
	esac
}
complete -F _weft weft
