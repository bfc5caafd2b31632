"""What a shell runs for tab completion: small scripts that ask the program, wherever it lies, also in a folder with spaces."""

# Our own, not Hydra's: its scripts split the program's path at spaces, and register `python` for `python -m primus_app`.

BASH = r"""_primus_complete() {
    local program line word found candidate
    program=$(printf '%s\n' "$1" | xargs printf '%s' 2>/dev/null)
    case $program in "~/"*) program=$HOME/${program#??} ;; esac
    line=${COMP_LINE:0:$COMP_POINT}
    line="primus${line#*"$1"}"
    word=${line##* }
    found=$(COMP_LINE=$line COMP_POINT=${#line} "$program" 2>/dev/null)
    COMPREPLY=()
    while IFS= read -r candidate; do
        if [ -n "$candidate" ]; then COMPREPLY+=("${candidate#"${word%"$2"}"}"); fi
    done <<< "$found"
}
complete -o nospace -o default -F _primus_complete primus"""
"""xargs takes off the quotes with which the path was typed. Bash completes from the last = or :, what stands before goes off."""

FISH = r"""function __primus_complete
    set -l words (commandline -opc)
    set -l program (string replace -r '^~/' "$HOME/" -- $words[1])
    set -e words[1]
    env COMP_LINE=(string join -- ' ' primus $words (commandline -ct)) $program
end
complete -c primus -f -a '(__primus_complete)'"""

SCRIPTS = {
    "install=bash": BASH,
    "install=zsh": f"autoload -Uz bashcompinit && bashcompinit\n{BASH}",
    "install=fish": FISH,
    "uninstall=bash": "complete -r primus; unset -f _primus_complete",
    "uninstall=zsh": "compdef -d primus; unfunction _primus_complete",
    "uninstall=fish": "complete -e -c primus; functions -e __primus_complete",
}
"""What each ``--shell-completion`` prints, for the shell's eval."""
