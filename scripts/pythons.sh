#!/bin/sh
# Runs the core of the tests on each Python that is named and found. The last line is JSON: which
# were run, which are missing, and whether all of them passed.
missing='' passed='' failed=''
for name in "$@"; do
    program=$(command -v "$name")
    for folder in "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin; do
        [ -x "$folder/$name" ] && program=$folder/$name
    done
    if [ -z "$program" ] || ! "$program" -c 'import ensurepip, venv' 2>/dev/null; then
        missing="$missing\"$name\", "
        continue
    fi
    venv=.venv/pythons/$name
    echo "== $name: $("$program" --version)" >&2
    if { [ -x "$venv/bin/python" ] || "$program" -m venv "$venv"; } >&2 &&
        "$venv/bin/python" -m pip install -q -c constraints.txt -e '.[dev]' >&2 &&
        "$venv/bin/python" -m pytest -q -n 2 tests/core tests/api tests/store tests/tools >&2; then
        passed="$passed\"$name\", "
    else
        failed="$failed\"$name\", "
    fi
done
ok=true
[ -n "$failed" ] || [ -z "$passed" ] && ok=false
echo "{\"ok\": $ok, \"passed\": [${passed%, }], \"failed\": [${failed%, }], \"missing\": [${missing%, }]}"
[ $ok = true ]
