"""The forms of secret tokens and private keys, as data.

They follow the documentation of the issuers, and the rules of gitleaks and GitHub's secret scanning. To add one: a row
here, and one in the table of ``tests/text/test_secret_forms.py``. A form takes time that is linear in the text: after
an unbounded repetition nothing more is required, and a match is never tried twice on the same text.
"""

# The text before a token, such as an escaped line break, a colour or a quoted colon (\n, \x1b[31m, %3A), may end in a
# letter. Only forms that may occur by chance need an edge, here that many characters back.
_EDGE = r"(?:(?<![A-Za-z0-9].{%d})|(?<=\\[nrt].{%d})|(?<=%%[0-9A-Fa-f]{2}.{%d})|(?<=[0-9]m.{%d}))"
_EDGE_2, _EDGE_3, _EDGE_4 = (_EDGE % ((length,) * 4) for length in (2, 3, 4))
#: The edge directly before a token.
_START = r"(?:(?<![A-Za-z0-9_~.-])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2})|(?<=[0-9]m))"
_END = r"(?![A-Za-z0-9_-])"
_KEY = r"[A-Z0-9 ]{0,60}PRIVATE KEY(?: BLOCK)?"

#: Issuer, form, and substrings of which a text with such a token has at least one: most texts need not be searched.
#: A match of the group ``no`` is not masked.
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
            "glag",
            "gloas-",
            "glimt-",
            "glwt-",
            "glff",
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
    # Models and monitoring
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
        # The secret key beside it, as the AWS console writes them.
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
    # Messaging, payment and office services
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
    # Without an issuer
    # A JSON web token, to its last part; a text that only begins like one is skipped as a whole.
    (
        "JSON web tokens",
        r"eyJ[A-Za-z0-9_-]{10,}+\.[A-Za-z0-9_-]{10,}+(?:\.[A-Za-z0-9_-]*+){0,3}|eyJ[A-Za-z0-9_-]{10,}+(?:\.[A-Za-z0-9_-]*+){3,4}"
        r"|(?P<no>eyJ[A-Za-z0-9_-]*+)",
        ("eyJ",),
    ),
    ("age", r"(?i:AGE-SECRET-KEY-(?:PQ-)?1)[A-Za-z0-9]{50,}", ("AGE-SECRET-KEY-", "age-secret-key-")),
    # A private key, to its END, whatever a log adds before each line; without END, as far as it looks like a key.
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

#: Tokens of a known length, whose end is known even if a line break divides them.
MEASURED = (
    r"gh[opusr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}|hf_[A-Za-z0-9]{34}|npm_[A-Za-z0-9]{36}"
    r"|glpat-[A-Za-z0-9_-]{20}|SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}|do[opr]_v1_[a-f0-9]{64}|dapi[a-f0-9]{32}"
)

#: A line of a private key without its BEGIN, which is no sha256; and the last line, which is shorter: below another,
#: above the END, or by itself.
LINE_OF_KEY = (
    r"(?<![A-Za-z0-9+/=_-])(?![0-9a-f]{64}(?![A-Za-z0-9+/]))(?:[A-Za-z0-9+/]{64}|[A-Za-z0-9+/]{70})(?![A-Za-z0-9+/=_-])"
    r"(?:(?P<between>[ \t\r]{0,8}\n(?:[^\n]{0,120}[^A-Za-z0-9+/=_\n-])?)[A-Za-z0-9+/]{2,63}={0,2}(?=[ \t\r]{0,8}$))?"
    rf"|(?<![A-Za-z0-9+/=_-])[A-Za-z0-9+/]{{16,70}}={{0,2}}(?=\s[^\n]{{0,60}}-----END {_KEY}-----)"
    r"|^[A-Za-z0-9+/]{24,69}={1,2}$"
)
