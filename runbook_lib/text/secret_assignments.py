"""The forms of secrets that are recognized by the text before them, as data: names, headers, options, addresses.

To add one: a row here, and one in the table of ``tests/text/test_secret_forms.py``. A form takes time that is linear
in the text, as those of ``secret_tokens``.
"""


def _spelled(*words: str, after: str = "") -> list[str]:
    """Return each word in lowercase, capitalized, and in capitals: faster to search for than ignoring the case."""
    spellings: list[str] = []
    for word in words:
        spellings += (f"{word}{after}", f"{word.capitalize()}{after}", f"{word.upper()}{after}")
    return spellings


# Kinds of keys in all the usual spellings: api_key, api-key, apikey, apiKey, ApiKey, API_KEY.
_KINDS = (
    "access", "account", "api", "app", "application", "auth", "client", "deploy", "encryption", "hmac", "license",
    "master", "private", "secret", "service", "session", "shared", "signing", "ssh", "storage", "subscription",
    "webhook",
)  # fmt: skip
_KEY_NAME = r"[_.-]?(?:(?:access|Access|ACCESS)[_.-]?)?(?:key|Key|KEY)(?:[_-]?(?:id|Id|ID|data))?"
_KEYS = _spelled(*_KINDS, after=_KEY_NAME)
_PASSWORDS = _spelled("password", "passwd", "passphrase", "secret", "credentials", "credential")
_PASSWORDS += _spelled("connection", after="[_-]?(?:string|String|STRING)")
#: Names of tokens that a program logs in with; a value after the plain word "token" must look like a secret.
_LOGIN_KINDS = ("access", "api", "auth", "bot", "bearer", "deploy", "id", "job", "private", "refresh", "session")
_LOGIN_TOKENS = _spelled(*_LOGIN_KINDS, after="[_-]?(?:token|Token|TOKEN)")
_LOGINS = "|".join((*_PASSWORDS, *_KEYS, *_LOGIN_TOKENS))
_NAMES = rf"(?:{_LOGINS}|token|Token|TOKEN)"
_SESSION_NAMES = _spelled("session", "sessionid", "session_id", "jsessionid", "phpsessid", "csrf_token", "csrftoken")
_SESSIONS = "|".join((*_SESSION_NAMES, r"connect\.sid|sessionId|sess_id"))
_QUOTED = r"(?:\\{0,3}[\"']|&quot;|&#x27;|&#39;)"
_QUOTE = rf"(?:\\{{0,3}}[\"']{{1,2}}|{_QUOTED})?"
_SIGN = r"\s{0,3}(?:=>|[:=])\s{0,3}"
_FIRST, _VALUE = r"[A-Za-z0-9!@#%^_+=/.~?|:-]", r"[A-Za-z0-9!@#%^*_+=/.~?|:$-]"
# Not a reference such as ${X} or <X>, nor an option.
_WORD = r"(?![-$*<{%])[^\s\"'`\\]"
_DIGIT = r"(?=\S{0,200}[0-9])"

#: Name, form, and substrings of which the lowercase text has at least one if it has such a secret. The first group of
#: the form is the text before the secret, which is not masked.
ASSIGNMENTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("headers", r"(?i)(\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{20,}", ("bearer", "basic")),
    (
        "authorization",
        r"(?i)(authorization\W{1,4}(?:(?:token|bearer|basic|apikey|bot|digest|negotiate|ntlm|splunk)\s+)?)"
        r"[A-Za-z0-9!@#%^_+=/.~?|:-]{8,}",
        ("authorization",),
    ),
    ("signed requests", r"(?i)(\bAWS4-HMAC-SHA256\s[^\n]{0,300}?Signature=)[0-9a-f]{16,}", ("aws4-hmac",)),
    (
        "cookies",
        r"(?im)((?<![a-z])(?:set-)?cookie2?[\"']?\s{0,3}[:=]\s{0,3}[\"']?[^\s=;:\"'\\]{1,100}=)[^\r\n\"'\\]{6,}",
        ("cookie",),
    ),
    (
        "cookies given to curl",
        r"(curl\b[^\n]{0,300}?\s(?:-b|--cookie)[= ]{1,3}[\"']?[^\s=;\"']{1,100}=)[^\r\n\"']{6,}",
        ("curl",),
    ),
    (
        "sessions",
        rf"((?:{_SESSIONS}){_QUOTE}{_SIGN}{_QUOTE}){_DIGIT}[A-Za-z0-9%._~+/=|:-]{{16,}}",
        ("sess", "csrf", "connect.sid"),
    ),
    # "password": "…1…", PRIVATE-TOKEN: …1…. Code and prose have numbers and values without a digit: those count only
    # if they are quoted.
    (
        "names",
        rf"((?:(?P<login>{_LOGINS})|token|Token|TOKEN){_QUOTE}{_SIGN}b?{_QUOTE})"
        rf"(?:(?(login)(?<=[\"';])|(?!))(?![$<{{%(*\[])[^\s\"'\\&<>]{{8,}}+(?={_QUOTED})"
        rf"|(?![0-9.,]{{1,40}}(?!{_VALUE}))(?={_VALUE}{{0,200}}[0-9]){_FIRST}{_VALUE}{{7,}})",
        ("token", "secret", "passw", "passphrase", "key", "credential", "connection"),
    ),
    (
        "variables",
        r"((?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|CONNECTION_STRING|APIKEY|_KEY|_PASS|_PWD|_PAT|_DSN)"
        r"=[\"']?)[^\s\"'`,;&<>$*(){}\[\]\\][^\s\"'`,;&<>()\\]{7,}",
        ("token=", "secret=", "password=", "wd=", "phrase=", "credential", "string=", "key=", "pass=", "pat=", "dsn="),
    ),
    (
        "connection strings",
        r"(?i)([;\"'](?:password|pwd|accountkey|sharedaccesskey|sharedsecretvalue)=)[^;\"'\s\\]{3,}",
        ("password=", "pwd=", "key=", "value="),
    ),
    (
        "libpq",
        r"(?i)((?:host|user|dbname|port)=[^\s=]{1,100} (?:[a-z_]{1,30}=[^\s=]{1,100} ){0,6}password=)[^\s\"'\\]{3,}",
        ("password=",),
    ),
    ("MySQL in Go", r"((?<![\w.-])[\w.-]{1,60}:)[^\s@:\"'`]{1,200}(?=@(?:tcp|unix)\()", ("@tcp(", "@unix(")),
    (
        "databases",
        r"((?:postgres(?:ql)?|mysql|mariadb|mongodb(?:\+srv)?|rediss?|amqps?)(?:\+\w{1,20})?://)[^\s\"'<>@]{1,300}(?=@)",
        ("://",),
    ),
    # Without = or colon: after an option, in a Dockerfile, in a netrc file, and in some commands.
    ("options", rf"(--(?<!---)[A-Za-z-]{{0,40}}{_NAMES}\s{{1,3}}[\"']?){_DIGIT}{_WORD}{{6,}}", ("--",)),
    ("ENV", rf"(ENV\s{{1,3}}[A-Z0-9_]{{0,80}}{_NAMES}\s{{1,3}}){_WORD}[^\s\"'`\\]{{5,}}", ("env ", "env\t")),
    ("netrc", r"(login\s{1,3}\S{1,200}\s{1,20}password\s{1,3})[^\s\"'`\\]{6,}", ("password",)),
    ("netrc, a line", r"(?m)^(.{0,60}\bpassword\s{1,3})(?=\S{0,200}[0-9])[^\s\"'`\\]{6,}$", ("password",)),
    ("docker login", rf"(login\b[^\n]{{0,200}}?\s-p[ =]?){_WORD}{{1}}[^\s\"'`\\]{{5,}}", ("login",)),
    (
        "curl",
        r"(curl\b[^\n]{0,300}?\s(?:-u|-U|--user|--proxy-user)[= ]?[\"']?[^\s:\"'$<{]{0,100}:)"
        r"(?![$<{*])[^\s\"'`\\]{3,}",
        ("curl",),
    ),
    ("wandb login", r"(wandb\s{1,3}login\s{1,3}(?:--[a-z-]{1,40}\s{1,3}){0,4})[A-Za-z0-9_-]{30,}", ("wandb",)),
    (
        "mysql, redis, sshpass",
        r"((?:mysql|mysqldump|mariadb)\b[^\n]{0,200}?\s-p|sshpass\s{1,3}-p\s?|redis-cli\b[^\n]{0,200}?\s-a\s{1,3})"
        r"[\"']?(?![-$<{*])[^\s\"'`\\]{4,}",
        ("mysql", "mariadb", "sshpass", "redis-cli"),
    ),
    ("openssl", r"(-pass(?:in|out)?\s{1,3}[\"']?pass:)[^\s\"'`\\]{3,}", ("pass:",)),
    ("kubectl", r"(--from-literal[= ][\"']?[^\s=]{1,80}=)(?![$<{])[^\s\"'`\\]{3,}", ("--from-literal",)),
    ("aws configure", r"(aws_(?:secret_access_key|session_token)\s{1,3})[A-Za-z0-9/+=]{20,}", ("aws_s",)),
    ("Docker's file", rf"(auth{_QUOTE}\s{{0,3}}:\s{{0,3}}{_QUOTE})[A-Za-z0-9+/]{{12,}}={{0,2}}", ("auth",)),
    (".npmrc", r"(_(?:auth|password)\s{0,3}=\s{0,3}[\"']?)[A-Za-z0-9+/=]{8,}", ("_auth", "_password")),
    ("kubeconfig", r"(key-data:\s{0,3}[\"']?)[A-Za-z0-9+/=]{16,}", ("key-data",)),
    # Addresses of stored artifacts and logs that contain their own credentials.
    (
        "addresses",
        r"(?i)([?&;](?:x-amz-security-token|key|token|code)=)(?=[^&\s]{0,200}[0-9])[^&\s\"'<>]{16,}",
        ("?", "&", ";"),
    ),
    (
        "signed addresses",
        r"(?i)((?<![a-z])(?:sig|signature|x-amz-signature|x-goog-signature)=)[^&\s\"'<>]{8,}",
        ("sig",),
    ),
)
#: The user and password of an address.
USERINFO = r"(?<=://)[^/\s\"'<>]{1,2000}@"
