#!/bin/sh
# Programs that tests use and that Python's packages do not bring. Where we may, they are installed; where we may not,
# this says what is missing and what is therefore not tested.
missing=""
want() { command -v "$1" >/dev/null 2>&1 || missing="$missing $2"; }
want bwrap bubblewrap
want rg ripgrep
want tmux tmux
want git git
want curl curl
want chromium chromium
[ -z "$missing" ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "== system parts:$missing"
    export DEBIAN_FRONTEND=noninteractive
    apt-get install -y -qq $missing >/dev/null 2>&1 ||
        { apt-get update -qq >/dev/null 2>&1 && apt-get install -y -qq $missing >/dev/null 2>&1; }
fi
missing=""
want bwrap "bubblewrap (the sandbox, shell and git are not tested)"
want rg "ripgrep (search is tested with its own walker only)"
want tmux "tmux (the live view is not tested in a terminal)"
want git "git (worktrees and git are not tested)"
want curl "curl (the HTTP API is not tested with it)"
want chromium "chromium (the HTTP API is not tested with a browser)"
[ -z "$missing" ] || echo "missing:$missing. Install them and run this again to test everything." >&2
exit 0
