# Sourced by the scripts: root is this checkout, set_up makes $root/.venv ready (scripts/setup_environment.py does the work).
root="$(CDPATH='' cd -P -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd -P)"

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

# $PYTHON, else the python that .venv was made with, else python3; never another one unasked, since python3 may bring the machine's torch.
choose_python() {
    local made_with="" newer="" name
    [ -f "$root/.venv/base-python" ] && made_with="$(cat "$root/.venv/base-python")"
    if [ -z "${PYTHON:-}" ] && [ -n "$made_with" ] && is_new_enough "$made_with"; then
        python="$made_with"
        return
    fi
    python="${PYTHON:-python3}"
    is_new_enough "$python" && return
    for name in python3.14 python3.13 python3.12 python3.11; do
        is_new_enough "$name" && newer="$name"
    done
    echo "set-up: primus_app needs python 3.11 or newer; $python is $("$python" --version 2>/dev/null || echo 'not there')." >&2
    printf '  Name another one: PYTHON=%s %q\n' "${newer:-/path/to/python3.11}" "$0" >&2
    exit 3
}

set_up() {
    choose_python
    PRIMUS_SETUP_COMMAND="$(printf %q "$0")" "$python" "$root/scripts/setup_environment.py" "$@"
}
