"""The forms of secrets, as data: tokens as their issuers make them, and what is called a secret where it is written.

The forms of tokens follow the documentation of their issuers, and the rules of gitleaks and GitHub's secret scanning.
To add one: a row here, and one in each table of ``tests/test_redact.py``.  A form takes time that is linear in the
text: after a repetition without a bound nothing more is required, and a match is never tried twice on the same text.
"""

# Whatever stands before a token, such as an escaped line break, a colour or a quoted colon (\n, \x1b[31m, %3A), may
# end in a letter: only forms that a text may hold by chance need an edge, here before so many characters.
_EDGE = r"(?:(?<![A-Za-z0-9].{%d})|(?<=\\[nrt].{%d})|(?<=%%[0-9A-Fa-f]{2}.{%d})|(?<=[0-9]m.{%d}))"
_EDGE_2, _EDGE_3, _EDGE_4 = (_EDGE % ((length,) * 4) for length in (2, 3, 4))
#: The same before the token itself.
_START = r"(?:(?<![A-Za-z0-9_~.-])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2})|(?<=[0-9]m))"
_END = r"(?![A-Za-z0-9_-])"
_KEY = r"[A-Z0-9 ]{0,60}PRIVATE KEY(?: BLOCK)?"

#: Tokens: who issues them, their form, and what a text holds that has one; most texts need not be searched.
#: What a group ``no`` matches stays.
TOKENS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    # Forges, registries and packages
    ("GitHub", r"gh[opusr]_[A-Za-z0-9]{20,}", ("ghp_", "gho_", "ghs_", "ghu_", "ghr_")),
    ("GitHub, fine-grained", r"github_pat_[A-Za-z0-9_]{20,}", ("github_pat_",)),
    (
        "GitLab",
        r"gl(?:pat|ptt|dt|rtr?|cbt|ft|soat|agent|oas|imt|wt|ffct)-[A-Za-z0-9_.-]{16,}",
        (
            "glpat-",
            "glptt-",
            "gldt-",
            "glrt",
            "glcbt-",
            "glft-",
            "glsoat-",
            "glagent-",
            "gloas-",
            "glimt-",
            "glwt-",
            "glffct-",
        ),
    ),
    ("GitLab, old runners", r"GR1348941[A-Za-z0-9_-]{16,}", ("GR1348941",)),
    ("Bitbucket", rf"ATBB{_EDGE_4}[A-Za-z0-9]{{32}}", ("ATBB",)),
    ("Atlassian", r"AT[AC]TT3[A-Za-z0-9_=-]{60,}", ("ATATT3", "ATCTT3")),
    ("npm", r"npm_[A-Za-z0-9]{30,}", ("npm_",)),
    ("PyPI", r"pypi-Ag[A-Za-z0-9_-]{30,}", ("pypi-Ag",)),
    ("RubyGems", r"rubygems_[a-f0-9]{48}", ("rubygems_",)),
    ("NuGet", rf"oy2{_EDGE_3}[a-z0-9]{{43}}{_END}", ("oy2",)),
    ("Clojars", r"CLOJARS_[a-z0-9]{60}", ("CLOJARS_",)),
    ("Docker Hub", r"dckr_[op]at_[A-Za-z0-9_-]{20,}", ("dckr_",)),
    ("Artifactory", rf"AKCp{_EDGE_4}[A-Za-z0-9]{{60,80}}|cmVmd[A-Za-z0-9]{{50,70}}", ("AKCp", "cmVmd")),
    ("Sourcegraph", r"sgp_(?:[a-fA-F0-9]{16}_|local_)?[a-fA-F0-9]{40}", ("sgp_",)),
    ("Buildkite", r"bk[ua]a?_[a-f0-9]{40}", ("bkua_", "bka_")),
    ("CircleCI", r"CCI(?:PAT|PRJ)_[A-Za-z0-9_]{30,}", ("CCIPAT_", "CCIPRJ_")),
    ("SonarQube", r"sq[upa]_[a-f0-9]{40}", ("squ_", "sqp_", "sqa_")),
    ("Snyk", r"snyk_(?:uat|sat)[._][A-Za-z0-9_.-]{20,}", ("snyk_",)),
    # Models and measurements
    ("NVIDIA", r"nvapi-[A-Za-z0-9_-]{16,}", ("nvapi-",)),
    ("Hugging Face", r"hf_[A-Za-z0-9]{30,}|api_org_[A-Za-z0-9]{30,}", ("hf_", "api_org_")),
    ("LLMs", rf"sk-{_EDGE_3}(?:(?:ant|proj|svcacct|admin|or)-[A-Za-z0-9_-]{{20,}}|[A-Za-z0-9]{{32,}})", ("sk-",)),
    (
        "Groq, xAI, Perplexity",
        r"gsk_[A-Za-z0-9]{40,}|xai-[A-Za-z0-9]{40,}|pplx-[A-Za-z0-9]{40,}",
        ("gsk_", "xai-", "pplx-"),
    ),
    ("Replicate", rf"r8_{_EDGE_3}[A-Za-z0-9]{{37}}", ("r8_",)),
    ("LangSmith, Pinecone", r"lsv2_[ps][tk]_[a-f0-9_]{30,}|pcsk_[A-Za-z0-9_]{30,}", ("lsv2_", "pcsk_")),
    ("Weights & Biases", r"wandb_v[0-9]_[A-Za-z0-9_-]{20,}", ("wandb_v",)),
    ("Databricks", rf"dapi{_EDGE_4}[a-f0-9]{{32}}(?:-[0-9])?", ("dapi",)),
    ("Grafana", r"glc_[A-Za-z0-9+/=]{32,}|glsa_[A-Za-z0-9]{32}_[A-Fa-f0-9]{8}", ("glc_", "glsa_")),
    (
        "New Relic",
        r"NR(?:AK|JS|II|IQ|RA|AA)-[A-Za-z0-9_-]{19,}",
        ("NRAK-", "NRJS-", "NRII-", "NRIQ-", "NRRA-", "NRAA-"),
    ),
    ("Sentry", r"sntry[su]_[A-Za-z0-9+/=_-]{40,}", ("sntrys_", "sntryu_")),
    ("Dynatrace", r"dt0[a-z][0-9]{2}\.[A-Z0-9]{24}\.[A-Z0-9]{64}", ("dt0",)),
    # Clouds
    (
        "AWS",
        rf"A(?:[KS]IA|3T[A-Z0-9]|BIA|CCA){_EDGE_4}[A-Z0-9]{{16}}(?![A-Za-z0-9])"
        # With it, as its console writes them, the key that belongs to it.
        r"(?:[\s,:;|\"']{1,6}[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=]))?",
        ("AKIA", "ASIA", "A3T", "ABIA", "ACCA"),
    ),
    ("AWS Bedrock", r"ABSK[A-Za-z0-9+/]{100,}={0,2}|bedrock-api-key-[A-Za-z0-9+/=]{30,}", ("ABSK", "bedrock-api-key-")),
    ("Google", rf"AIza{_EDGE_4}[A-Za-z0-9_-]{{35}}{_END}", ("AIza",)),
    (
        "Google OAuth",
        r"ya29\.[A-Za-z0-9_-]{20,}|GOCSPX-[A-Za-z0-9_-]{20,}|1//0[A-Za-z0-9_-]{30,}",
        ("ya29.", "GOCSPX-", "1//0"),
    ),
    ("Azure AD", rf"{_START}[A-Za-z0-9_~.-]{{3}}[0-9]Q~[A-Za-z0-9_~.-]{{31,34}}", ("Q~",)),
    ("Azure, identifiable", r"[A-Za-z0-9]{52}JQQJ99[A-Za-z0-9]{20,30}", ("JQQJ99",)),
    ("Alibaba", rf"LTAI{_EDGE_4}[A-Za-z0-9]{{16,24}}{_END}", ("LTAI",)),
    ("Yandex", r"AQVN[A-Za-z0-9_-]{35,38}|t1\.[A-Z0-9a-z_-]{40,}\.[A-Z0-9a-z_-]{86}", ("AQVN", "t1.")),
    ("DigitalOcean", r"do[opr]_v1_[a-f0-9]{64}", ("doo_v1_", "dop_v1_", "dor_v1_")),
    ("Cloudflare", r"v1\.0-[a-f0-9]{24}-[a-f0-9]{146}", ("v1.0-",)),
    ("Fly.io", r"fo1_[A-Za-z0-9_-]{43}|fm[12][ar]?_[A-Za-z0-9+/=_-]{80,}", ("fo1_", "fm1", "fm2")),
    ("Heroku", r"HRKU-[A-Za-z0-9_-]{30,}", ("HRKU-",)),
    (
        "Netlify, Render, Supabase",
        r"nfp_[A-Za-z0-9]{36}|rnd_[A-Za-z0-9]{28}|sbp_[a-f0-9]{40}|sb_secret_[A-Za-z0-9_-]{20,}",
        ("nfp_", "rnd_", "sbp_", "sb_secret_"),
    ),
    ("PlanetScale", r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9=._-]{30,}", ("pscale_",)),
    ("Tailscale", r"tskey-[a-z]{1,20}-[A-Za-z0-9_-]{16,}", ("tskey-",)),
    ("OpenShift", r"sha256~[A-Za-z0-9_-]{43}", ("sha256~",)),
    (
        "Vault",
        r"hv[sbr]\.[A-Za-z0-9_-]{20,}|(?<![A-Za-z0-9._-])s\.(?=[A-Za-z]{0,23}[0-9])[A-Za-z0-9]{24}(?![A-Za-z0-9.])",
        ("hvs.", "hvb.", "hvr.", "s."),
    ),
    ("Terraform Cloud", r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9=_-]{60,}", (".atlasv1.",)),
    ("Pulumi", r"pul-[a-f0-9]{40}", ("pul-",)),
    ("Doppler", r"dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[a-z0-9_-]{1,40}\.)?[A-Za-z0-9]{40,44}", ("dp.",)),
    # Messages, payments and offices
    ("Slack", r"xox[abeoprs](?:\.xox[bp])?[.-][A-Za-z0-9.-]{10,}|xapp-[0-9]-[A-Za-z0-9-]{10,}", ("xox", "xapp-")),
    (
        "Slack webhook",
        r"(?<=hooks\.slack\.com/services/)[A-Za-z0-9/]{20,}|(?<=hooks\.slack\.com/)(?:workflows|triggers)/[A-Za-z0-9/]{20,}",
        ("hooks.slack.com",),
    ),
    ("Teams webhook", r"(?<=webhook\.office\.com/webhookb2/)[A-Za-z0-9@/-]{20,}", ("webhook.office.com",)),
    ("Discord webhook", r"(?<=/api/webhooks/)[0-9]{5,30}/[A-Za-z0-9_-]{30,}", ("/api/webhooks/",)),
    (
        "Discord",
        r"[MNO](?:(?<![A-Za-z0-9_-].)|(?<=\\[nrt].)|(?<=[0-9]m.))[A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}",
        (".",),
    ),
    ("Telegram", r"(?<![0-9])[0-9]{5,16}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])", (":AA",)),
    (
        "Stripe",
        r"(?:sk|rk|pk)_(?:test|live|prod)_[A-Za-z0-9]{10,}|whsec_[A-Za-z0-9+/=]{20,}",
        ("k_test_", "k_live_", "k_prod_", "whsec_"),
    ),
    ("SendGrid", r"SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{30,}", ("SG.",)),
    ("Twilio", rf"(?:SK|AC){_EDGE_2}[0-9a-f]{{32}}{_END}", ("SK", "AC")),
    (
        "Mailgun, Mailchimp",
        rf"key-{_EDGE_4}[a-f0-9]{{32}}{_END}|{_START}[a-f0-9]{{32}}-us[0-9]{{1,2}}{_END}",
        ("key-", "-us"),
    ),
    (
        "Brevo, Postman, Shippo",
        r"xkeysib-[a-f0-9]{64}-[A-Za-z0-9]{16}|PMAK-[a-f0-9]{24}-[a-f0-9]{34}|shippo_(?:live|test)_[a-f0-9]{40}",
        ("xkeysib-", "PMAK-", "shippo_"),
    ),
    ("Shopify", r"shp(?:at|ca|pa|ss|ua)_[a-fA-F0-9]{32}", ("shpat_", "shpca_", "shppa_", "shpss_", "shpua_")),
    ("Square", rf"sq0[a-z]{{3}}-[A-Za-z0-9_-]{{22,43}}|EAAA{_EDGE_4}[A-Za-z0-9_-]{{60}}", ("sq0", "EAAA")),
    ("Facebook", rf"EAA[MC]{_EDGE_4}[A-Za-z0-9]{{60,}}", ("EAAM", "EAAC")),
    ("Airtable", r"pat[A-Za-z0-9]{14}\.[a-f0-9]{64}", ("pat",)),
    (
        "Notion, Linear, Figma",
        r"ntn_[A-Za-z0-9]{40,}|secret_[A-Za-z0-9]{43}(?![A-Za-z0-9_])|lin_(?:api|oauth)_[A-Za-z0-9]{30,}|fig[dour]_[A-Za-z0-9_-]{30,}",
        ("ntn_", "secret_", "lin_", "figd_", "figo_", "figu_", "figr_"),
    ),
    ("HubSpot", r"pat-(?:na|eu)[0-9]-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", ("pat-na", "pat-eu")),
    ("Dropbox", rf"{_START}sl\.(?:u\.)?[A-Za-z0-9_=-]{{60,}}", ("sl.",)),
    (
        "1Password",
        r"ops_eyJ[A-Za-z0-9+/=_-]{100,}|A3-[A-Z0-9]{6}-[A-Z0-9]{6,11}(?:-[A-Z0-9]{5}){3,4}",
        ("ops_eyJ", "A3-"),
    ),
    # Of no issuer
    # A JSON web token, to the last of its parts; what only begins as one does is passed over in one go.
    (
        "JSON web tokens",
        r"eyJ[A-Za-z0-9_-]{10,}+\.[A-Za-z0-9_-]{10,}+(?:\.[A-Za-z0-9_-]*+){0,3}|eyJ[A-Za-z0-9_-]{10,}+(?:\.[A-Za-z0-9_-]*+){3,4}"
        r"|(?P<no>eyJ[A-Za-z0-9_-]*+)",
        ("eyJ",),
    ),
    ("age", r"(?i:AGE-SECRET-KEY-(?:PQ-)?1)[A-Za-z0-9]{50,}", ("AGE-SECRET-KEY-", "age-secret-key-")),
    # A private key, to its end, whatever a log has put before each line; without one, as far as it can be told.
    (
        "private keys",
        rf"-----BEGIN {_KEY}-----"
        rf"(?:(?:(?!-----BEGIN )[\s\S]){{0,20000}}?-----END {_KEY}-----(?:\s|\\[nr])*"
        r"|(?:[A-Za-z0-9+/=\s:,-]|\\[nr])*)",
        ("-----BEGIN ",),
    ),
    (
        "SSH2 private keys",
        r"---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----(?:(?!---- BEGIN )[\s\S]){0,20000}?---- END SSH2 [A-Z ]{0,40}----",
        ("---- BEGIN SSH2",),
    ),
    ("PuTTY", r"(?<=Private-Lines: )[0-9]{1,4}(?:\s|\\[nr]){1,4}(?:[A-Za-z0-9+/=]|\s|\\[nr])*", ("Private-Lines: ",)),
    (
        "OpenVPN",
        r"-----BEGIN OpenVPN Static key V1-----[0-9a-f\s\\nr]*(?:-----END OpenVPN Static key V1-----)?",
        ("-----BEGIN OpenVPN",),
    ),
)

#: Those whose length is known: the end of one is known too where a line break divides it.
MEASURED = (
    r"gh[opusr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}|hf_[A-Za-z0-9]{34}|npm_[A-Za-z0-9]{36}"
    r"|glpat-[A-Za-z0-9_-]{20}|SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}|do[opr]_v1_[a-f0-9]{64}|dapi[a-f0-9]{32}"
)

#: A line of a private key that stands alone, which is no sha256; and the last one, which is shorter: below another,
#: above the END, or by itself.
LINE_OF_KEY = (
    r"(?<![A-Za-z0-9+/=_-])(?![0-9a-f]{64}(?![A-Za-z0-9+/]))(?:[A-Za-z0-9+/]{64}|[A-Za-z0-9+/]{70})(?![A-Za-z0-9+/=_-])"
    r"(?:(?P<between>[ \t\r]{0,8}\n(?:[^\n]{0,120}[^A-Za-z0-9+/=_\n-])?)[A-Za-z0-9+/]{2,63}={0,2}(?=[ \t\r]{0,8}$))?"
    rf"|(?<![A-Za-z0-9+/=_-])[A-Za-z0-9+/]{{16,70}}={{0,2}}(?=\s[^\n]{{0,60}}-----END {_KEY}-----)"
    r"|^[A-Za-z0-9+/]{24,69}={1,2}$"
)

# -- what is called a secret -------------------------------------------------------------------------------------------


def _spelled(*words: str, after: str = "") -> list[str]:
    """Each word as it is, with a capital, and in capitals: quicker to look for than without regard to case."""
    return [f"{it}{after}" for word in words for it in (word, word.capitalize(), word.upper())]


# In all the usual spellings: api_key, api-key, apikey, apiKey, ApiKey, API_KEY.
_KINDS = (
    "access",
    "account",
    "api",
    "app",
    "application",
    "auth",
    "client",
    "deploy",
    "encryption",
    "hmac",
    "license",
    "master",
    "private",
    "secret",
    "service",
    "session",
    "shared",
    "signing",
    "ssh",
    "storage",
    "subscription",
    "webhook",
)
_KEY_NAME = r"[_.-]?(?:(?:access|Access|ACCESS)[_.-]?)?(?:key|Key|KEY)(?:[_-]?(?:id|Id|ID|data))?"
_KEYS = _spelled(*_KINDS, after=_KEY_NAME)
_PASSWORDS = _spelled("password", "passwd", "passphrase", "secret", "credentials", "credential")
_PASSWORDS += _spelled("connection", after="[_-]?(?:string|String|STRING)")
#: What a program logs in with; a token of a text is no secret unless it looks like one.
_LOGIN_KINDS = ("access", "api", "auth", "bot", "bearer", "deploy", "id", "job", "private", "refresh", "session")
_LOGIN_TOKENS = _spelled(*_LOGIN_KINDS, after="[_-]?(?:token|Token|TOKEN)")
_LOGINS = "|".join((*_PASSWORDS, *_KEYS, *_LOGIN_TOKENS))
_NAMES = rf"(?:{_LOGINS}|token|Token|TOKEN)"
_SESSIONS = "|".join(
    (
        *_spelled("session", "sessionid", "session_id", "jsessionid", "phpsessid", "csrf_token", "csrftoken"),
        r"connect\.sid|sessionId|sess_id",
    )
)
_QUOTED = r"(?:\\{0,3}[\"']|&quot;|&#x27;|&#39;)"
_QUOTE = rf"(?:\\{{0,3}}[\"']{{1,2}}|{_QUOTED})?"
_SIGN = r"\s{0,3}(?:=>|[:=])\s{0,3}"
_FIRST, _VALUE = r"[A-Za-z0-9!@#%^_+=/.~?|:-]", r"[A-Za-z0-9!@#%^*_+=/.~?|:$-]"
# Not a reference such as ${X} or <X>, an option, or a variable in capitals.
_WORD = r"(?![-$*<{%])[^\s\"'`\\]"
_DIGIT = r"(?=\S{0,200}[0-9])"

#: What says that a secret follows, and the secret; what a text holds in lowercase that has one.  The first group stays.
SAID: tuple[tuple[str, str, tuple[str, ...]], ...] = (
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
    # "password": "…1…", PRIVATE-TOKEN: …1….  Neither a number, nor anything without a digit, as code and prose have it;
    # but whatever is quoted, and what a variable in capitals is set to.
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
        (
            "token=",
            "secret=",
            "password=",
            "passwd=",
            "passphrase=",
            "credential=",
            "credentials=",
            "connection_string=",
            "apikey=",
            "_key=",
            "_pass=",
            "_pwd=",
            "_pat=",
            "_dsn=",
        ),
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
    # Without a sign between: after an option, in a Dockerfile, a netrc file, and of some commands.
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
    # What lets whoever has the address in: of stored artifacts and logs.
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
USERINFO = r"(?<=://)[^/\s\"'<>]{1,2000}@"
