# fish completion for segalloc and segalloc-train. tables.py puts the tables of both programs in.

# The place of the command that is to run: after --, or the first word that is no option and no value of one. Else nothing.
function __segalloc_command_at
    set -l words (commandline -opc)
    set -l i 3
    while test $i -le (count $words)
        if test "$words[$i]" = --
            math $i + 1
            return
        else if contains -- "$words[2] $words[$i]" $__segalloc_takers
            set i (math $i + 1)
        else if not string match -q -- '-*' $words[$i]
            echo $i
            return
        end
        set i (math $i + 1)
    end
    # A value of an option that is still to come is no command.
    test $i -eq (math (count $words) + 1); and echo $i
end
function __segalloc_at
    test (count (commandline -opc)) -eq $argv[1]
end
# Whether the options of a verb belong here, which those of the command that it runs follow.
function __segalloc_verb
    set -l words (commandline -opc)
    test (count $words) -ge 2; and test "$words[2]" = $argv[1]; or return 1
    contains -- $argv[1] run rehearse doctor; or return 0
    set -l at (__segalloc_command_at)
    test -z "$at"; or test $at -gt (count $words)
end
function __segalloc_command
    set -l words (commandline -opc)
    test (count $words) -ge 2; and test "$words[2]" = $argv[1]; and test -n "$(__segalloc_command_at)"
end
function __segalloc_subcommand
    set -l words (commandline -opc)
    set -l at (__segalloc_command_at)
    set -l rest
    test $at -le (count $words); and set rest (string escape -- $words[$at..-1])
    complete -C "$rest "(commandline -ct)
end
# What stands before the last comma, or after the key, stays.
function __segalloc_values
    set -l word (commandline -ct | string replace -r '^--[a-z-]+=' '')
    set -l kept (string replace -rf '(.*,).*' '$1' -- "$word")
    set -l last (string replace -r '.*,' '' -- "$word")
    switch $argv[1]
        case @list
            printf '%s\n' "$kept"$argv[2..-1]
        case @keys
            string replace -r ' .*' '' -- $__segalloc_conf
        case @param
            string replace -r ' .*' = -- $__segalloc_conf" "
        case @pids
            for page in /dev/shm/segalloc-live-*
                set -l pid (string replace -r '.*-' '' -- $page)
                test -e /proc/$pid; and echo $pid
            end
        case @folders
            __fish_complete_directories $word
        case @conf
            set -l key (string replace -rf ':.*' '' -- $last)
            for row in $__segalloc_conf
                set -l words (string split ' ' -- $row)
                if test -z "$key"
                    echo "$kept$words[1]:"
                else if test "$key" = "$words[1]"
                    if test "$words[2]" = @files
                        __fish_complete_path (string replace -r '.*?:' '' -- $last) | string replace -r '^' "$kept$key:"
                    else if set -q words[2]
                        printf '%s\n' "$kept$key:"$words[2..-1]
                    end
                end
            end
    end
end
@TABLES@
