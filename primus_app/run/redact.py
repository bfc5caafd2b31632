"""Keeping passwords and tokens out of files that are made to be shared."""

import re

REDACTED = "<redacted>"
SECRET_NAME = re.compile(r"TOKEN|KEY|SECRET|PASSW|PASSPHRASE|CREDENTIAL|AUTH|PRIVATE|SIGNATURE|COOKIE|JWT", re.IGNORECASE)
SECRET_WORD = re.compile(r"(^|[_.-])(token|api_?key|key|secret|password|passwd|credentials?|auth)$", re.IGNORECASE)
"""For a name that was typed: data.tokenizer and training.tokens are no secrets, hf_token is."""

URL_LOGIN = re.compile(r"(?P<scheme>\b[a-z][a-z0-9+.-]*://)(?!git@)[^\s/@'\"]+@", re.IGNORECASE)
KNOWN_TOKEN = re.compile(
    r"\b(hf_[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|AKIA[0-9A-Z]{16}|sk-[\w-]{20,}|xox[abprs]-[\w-]{10,})"
)


def redact_text(text: str) -> str:
    """Without the logins in URLs and without tokens of known shapes."""
    return KNOWN_TOKEN.sub(REDACTED, URL_LOGIN.sub(rf"\g<scheme>{REDACTED}@", text))


def redact_variable(name: str, value: str) -> str:
    """The value of an environment variable; all of it goes when the name speaks of a secret."""
    return REDACTED if SECRET_NAME.search(name) and value else redact_text(value)


def redact_argument(argument: str) -> str:
    """A word of the command line; of name=value the value goes when the name speaks of a secret."""
    name, sign, value = argument.partition("=")
    return f"{name}={REDACTED}" if sign and value and SECRET_WORD.search(name) else redact_text(argument)
