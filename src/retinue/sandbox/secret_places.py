"""Where a user's secrets are usually stored: names and patterns."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from retinue.sandbox.protected_paths import PROJECT, home_directories, names, plain

# In every home directory, with all that is in them: keys, passwords, histories of shells, profiles
# of browsers.
SECRETS = tuple(
    tuple(path.split("/"))
    for path in (
        "Library/Application Support",
        *sorted(
            names(
                ".ssh .aws .azure .config .docker .gcloud .gnupg .kube .netrc .npmrc .pypirc "
                ".git-credentials .gitconfig .my.cnf .pgpass .password-store .terraformrc "
                ".terraform.d .cargo/credentials .cargo/credentials.toml .local/state "
                ".local/share/keyrings .local/share/retinue .cache/retinue .mozilla .bash_history "
                ".python_history .zsh_history .psql_history .claude .claude.json .codex .gemini "
                ".vault-token .m2/settings.xml .m2/settings-security.xml .gem/credentials "
                ".gradle/gradle.properties .s3cfg .boto .authinfo .authinfo.gpg .oci "
                ".cache/huggingface/token .cache/huggingface/stored_tokens .rclone.conf .msmtprc "
                ".fetchmailrc .mbsyncrc .subversion/auth .hgrc .thunderbird .mysql_history "
                ".mylogin.cnf .sqlite_history .node_repl_history .irb_history .rediscli_history "
                ".lesshst .viminfo .kaggle .composer/auth.json .bundle/config .yarnrc .yarnrc.yml "
                ".pulumi/credentials.json .databrickscfg .Xauthority .ICEauthority .smbcredentials "
                ".fly .local/share/fish .pki .snowsql .ngrok2 .copilot snap Library/Keychains "
                "Library/Cookies Library/Mail Library/Messages Library/Safari"
            )
        ),
    )
)
_FOLDED = tuple(tuple(plain(part) for part in secret) for secret in SECRETS)
_FIRST = (".", *sorted({secret[0] for secret in _FOLDED if not secret[0].startswith(".")}))
# Names with a dot that someone who works in a home directory sees there: what a project has, and
# what is made anew. Everything else with a dot is hidden, since no list of the programs that keep
# passwords and histories is ever whole.
USUAL = PROJECT | names(
    ".git .hg .jj .svn .gitmodules .gitlab .circleci .travis.yml .husky .githooks .vscode .idea "
    ".zed .devcontainer .retinue .venv .tox .nox .pytest_cache .mypy_cache .ruff_cache .hypothesis "
    ".ipynb_checkpoints .next .nuxt .turbo .tool-versions .node-version .ruby-version "
    ".terraform-version .npmignore .babelrc .browserslistrc .stylelintrc .eslintrc.js "
    ".eslintrc.cjs .eslintrc.yml .eslintignore .prettierrc.json .clang-format .clang-tidy "
    ".rustfmt.toml .golangci.yml .pylintrc .isort.cfg .yamllint .markdownlint.json .rubocop.yml "
    ".readthedocs.yaml .codecov.yml"
)


def secret_places(tops: tuple[str, ...]) -> Iterator[str]:
    """Where the secrets are of the user who runs this, and of all users whose home is in these
    directories. A link leads to them from anywhere."""
    mine = os.path.realpath(os.path.expanduser("~"))
    for home in home_directories():
        if home == mine or is_inside(home, tops):
            for secret in SECRETS:
                if os.path.lexists(path := f"{home}/{'/'.join(secret)}"):
                    yield os.path.realpath(path)
        if is_inside(home, tops):
            yield from (f"{home}/{name}" for name in _dotted(home))


def _dotted(home: str) -> list[str]:
    """What else in a home directory is hidden from runs that work in it. (A link shows what is
    visible anyway.)"""
    try:
        with os.scandir(home) as entries:
            return [e.name for e in entries if is_unusual(plain(e.name)) and not e.is_symlink()]
    except OSError:
        return []


def is_unusual(folded: str) -> bool:
    return folded.startswith(".") and folded not in USUAL


def is_secret(path: str, home: str, root: str) -> bool:
    """The listed ones are secret for everyone; all else that is unusual, unless it is the place of
    work itself."""
    rest = path[len(home) :] if path.startswith(home) else ""
    if not rest or (rest.isascii() and not rest.lower().startswith(_FIRST)):  # as nearly all do
        return False
    parts = tuple(plain(part) for part in rest.split("/"))
    if any(parts[: len(secret)] == secret for secret in _FOLDED):
        return True
    return is_unusual(parts[0]) and not is_inside(root, (home + rest.split("/")[0],))


def is_inside(path: str, roots: Iterable[str]) -> bool:
    return any(path == root or path.startswith(root.rstrip("/") + "/") for root in roots)
