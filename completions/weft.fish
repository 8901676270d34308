# fish completion for weft(1). Commands, options and values come from the tables of the weft that is completed (--complete).

function __weft_commands
    set -l weft (commandline -opc)[1]
    $weft --complete 2>/dev/null
end

function __weft_arguments
    set -l words (commandline -opc)
    set -l lines ($words[1] $words[2] --complete 2>/dev/null)
    set -l found
    for line in $lines
        set -l parts (string split \t -- $line)
        if test "$parts[1]" = "$words[-1]"; and test -n "$parts[2]"
            switch $parts[2]
                case FILE
                    __fish_complete_path (commandline -ct)
                case '*NICS'
                    command ls /sys/class/net /sys/class/infiniband 2>/dev/null | string match -v '*:'
                case 'NAME[,*'
                    $words[1] sim machines 2>/dev/null | string replace -r ' .*' ''
                case '*'
                    string split ' ' -- $parts[3]
            end
            return
        end
        set -a found "$parts[1]"\t"$parts[-1]"
    end
    if test "$words[2]" = sim; and contains -- $words[-1] faults set clear link
        __fish_complete_path (commandline -ct)
        return
    end
    if test "$words[2]" = bench; and not string match -q -- '-*' (commandline -ct)
        __fish_print_hostnames
        return
    end
    printf '%s\n' $found
end

function __weft_names_command
    set -l words (commandline -opc)
    test (count $words) -eq 1; or test (count $words) -eq 2 -a "$words[2]" = help
end

complete -c weft -f
complete -c weft -n __weft_names_command -a '(__weft_commands)'
complete -c weft -n 'not __weft_names_command' -a '(__weft_arguments)'
