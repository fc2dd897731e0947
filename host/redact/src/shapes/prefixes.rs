//! Keys that can be recognised by themselves, because their issuer begins them with a prefix or gives them a form.
//!
//! Each row is a kind, what must be in front and is kept, and the secret. Lengths are somewhat below what the issuers use
//! today, since they grow. A match that reads like words is left: `sk-loading-indicator` is the class of an element. What
//! identifies but gives no access is not listed: Stripe's `pk_`, Twilio's `AC`, the client ids of OAuth.
//!
//! Every row has a run of letters and digits that `run_from` finds. In no row something must follow a run without a limit: a
//! search that waits for it would pass over the same text once for each of the other keys in there.

/// A boundary of an ASCII word. Prefixes so distinct that they count inside a word too are written without it.
const B: &str = r"(?-u:\b)";
/// What is part of no other word.
const NONE: &str = "";

#[rustfmt::skip]
pub(super) const PREFIXES: [(&str, &str, &str); 77] = [
    // OpenAI, Anthropic, OpenRouter, DeepSeek, LiteLLM and others.
    ("sk_token",            B,    r"sk-[A-Za-z0-9_-]{16,}"),
    ("github_pat",          NONE, r"ghp_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{22,}"),
    ("github_server_token", NONE, r"ghs_[A-Za-z0-9]{20,}"),
    ("github_token",        NONE, r"gh[our]_[A-Za-z0-9]{20,}"),
    ("aws_access_key",      B,    r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?-u:\b)"),
    ("cf_token",            B,    r"cf(?:ut|at|k)_[A-Za-z0-9]{32,}|v1\.0-[0-9a-f]{24}-[0-9a-f]{40,}"),
    ("mol_pk",              B,    r"mol_pk_[A-Za-z0-9]{20,}"),
    ("ctx7_token",          B,    r"ctx7_[A-Za-z0-9]{8,}|ctx7sk-[A-Za-z0-9-]{16,}"),
    ("google_api_key",      B,    r"AIza[A-Za-z0-9_-]{35,}"),
    ("google_token",        B,    r"ya29\.[A-Za-z0-9_-]{20,}|GOCSPX-[A-Za-z0-9_-]{20,}|1//0[A-Za-z0-9_-]{30,}"),
    ("hf_token",            B,    r"hf_[A-Za-z0-9]{30,}|api_org_[A-Za-z0-9]{30,}"),
    ("groq_token",          B,    r"gsk_[A-Za-z0-9]{40,}"),
    ("nvidia_token",        B,    r"nvapi-[A-Za-z0-9_-]{40,}"),
    ("gitlab_token",        B,    r"gl(?:pat|dt|rt|rtr|cbt|ptt|ft|soat|imt|agent|oas|ffct|wt)-[A-Za-z0-9_.-]{20,}|GR1348941[A-Za-z0-9_-]{20,}"),
    ("slack_token",         B,    r"xox[a-z](?:\.xox[a-z])?-[A-Za-z0-9-]{20,}|xapp-[0-9]-[A-Za-z0-9-]{20,}"),
    ("slack_webhook",       r"hooks\.slack\.com/(?:services|workflows|triggers)/", r"[A-Za-z0-9/_-]{20,}"),
    ("discord_webhook",     r"discord(?:app)?\.com/api/(?:v[0-9]{1,2}/)?webhooks/[0-9]{15,22}/", r"[A-Za-z0-9_-]{30,}"),
    ("discord_token",       B,    r"[MNO][A-Za-z0-9_-]{23,25}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}"),
    ("teams_webhook",       r"\.webhook\.office\.com/webhookb2/", r"[A-Za-z0-9@/-]{40,}"),
    ("telegram_token",      r"(?-u:\b)(?:bot)?[0-9]{6,12}:", r"[A-Za-z0-9_-]{34,35}(?-u:\b)"),
    ("stripe_key",          B,    r"[rs]k_(?:live|test|prod)_[A-Za-z0-9]{16,}"),
    ("webhook_secret",      B,    r"whsec_[A-Za-z0-9+/]{24,}={0,2}"),
    ("npm_token",           B,    r"npm_[A-Za-z0-9]{36,}"),
    ("pypi_token",          B,    r"pypi-[A-Za-z0-9_-]{40,}"),
    ("rubygems_token",      B,    r"rubygems_[0-9a-f]{40,}"),
    ("crates_token",        B,    r"cio[A-Za-z0-9]{32}(?-u:\b)"),
    ("nuget_key",           B,    r"oy2[a-z0-9]{43}(?-u:\b)"),
    ("docker_token",        B,    r"dckr_[po]at_[A-Za-z0-9_-]{20,}"),
    ("vault_token",         B,    r"hv[sbr]\.[A-Za-z0-9_-]{20,}"),
    ("age_key",             B,    r"AGE-(?:SECRET-KEY|PLUGIN-[A-Z0-9-]{1,32})-(?:PQ-)?1[0-9A-Za-z]{40,}"),
    ("digitalocean_token",  B,    r"do[opr]_v1_[0-9a-f]{40,}"),
    ("twilio_key",          B,    r"SK[0-9a-f]{32}(?-u:\b)"),
    ("sendgrid_key",        B,    r"SG\.[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{16,}"),
    ("mailgun_key",         B,    r"key-[0-9a-f]{32}(?-u:\b)|[0-9a-f]{32}-[0-9a-f]{8}-[0-9a-f]{8}(?-u:\b)"),
    ("mailchimp_key",       B,    r"[0-9a-f]{32}-us[0-9]{1,2}(?-u:\b)"),
    ("brevo_key",           B,    r"xkeysib-[0-9a-f]{40,}(?:-[A-Za-z0-9]{8,})?"),
    ("resend_key",          B,    r"re_[A-Za-z0-9]{6,10}_[A-Za-z0-9]{20,}"),
    ("shopify_token",       B,    r"shp(?:at|ca|pa|ss|tka|ua|it)_[0-9A-Fa-f]{32,}"),
    ("square_token",        B,    r"EAAA[A-Za-z0-9_-]{56,}|sq0(?:atp|csp)-[A-Za-z0-9_-]{22,}"),
    ("facebook_token",      B,    r"EAA(?:CEdEose0cBA|[MC][A-Za-z0-9]{16})[A-Za-z0-9]{60,}"),
    ("replicate_token",     B,    r"r8_[A-Za-z0-9]{30,}"),
    ("perplexity_key",      B,    r"pplx-[A-Za-z0-9]{40,}"),
    ("xai_key",             B,    r"xai-[A-Za-z0-9]{40,}"),
    ("fireworks_key",       B,    r"fw_[A-Za-z0-9]{22,24}(?-u:\b)"),
    ("jina_key",            B,    r"jina_[A-Za-z0-9_-]{40,}"),
    ("tavily_key",          B,    r"tvly-[A-Za-z0-9-]{20,}"),
    ("firecrawl_key",       B,    r"fc-[0-9a-f]{32}(?-u:\b)"),
    ("e2b_key",             B,    r"e2b_[0-9a-f]{40,}"),
    ("elevenlabs_key",      B,    r"sk_[0-9a-f]{48}(?-u:\b)"),
    ("langsmith_key",       B,    r"lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}"),
    ("databricks_token",    B,    r"d(?:api|kea|ose)[0-9a-f]{32}(?:-[0-9])?(?-u:\b)"),
    ("linear_key",          B,    r"lin_(?:api|oauth)_[A-Za-z0-9]{32,}"),
    ("notion_token",        B,    r"ntn_[A-Za-z0-9]{40,}|secret_[A-Za-z0-9]{43}(?-u:\b)"),
    ("supabase_key",        B,    r"sbp_(?:v0_|oauth_)?[0-9a-f]{40,}|sb_secret_[A-Za-z0-9_-]{20,}"),
    ("doppler_token",       B,    r"dp\.(?:pt|st|ct|sa|scim|audit|said)\.(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40,}"),
    ("pulumi_token",        B,    r"pul-[0-9a-f]{40}"),
    ("terraform_token",     B,    r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_-]{40,}"),
    ("azure_secret",        NONE, r"[A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}"),
    ("grafana_token",       B,    r"glsa_[A-Za-z0-9]{32}_[0-9a-fA-F]{8}|glc_[A-Za-z0-9+/]{32,}={0,2}"),
    ("newrelic_key",        B,    r"NRAK-[A-Z0-9]{27}|NRRA-[0-9a-f]{40}"),
    ("sentry_token",        B,    r"sntry[su]_[A-Za-z0-9+/=_-]{40,}"),
    ("postman_key",         B,    r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}"),
    ("airtable_token",      B,    r"pat[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
    ("figma_token",         B,    r"fig[dour]_[A-Za-z0-9_-]{30,}"),
    ("atlassian_token",     B,    r"AT(?:ATT3|CTT3|BB)[A-Za-z0-9_=-]{28,}"),
    ("hubspot_token",       B,    r"pat-(?:na|eu|ap)[0-9]-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"),
    ("planetscale_token",   B,    r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.-]{30,}"),
    ("netlify_token",       B,    r"nf[po]_[A-Za-z0-9]{36,}"),
    ("fly_token",           B,    r"fm[12][ar]?_[A-Za-z0-9+/=_-]{40,}|fo1_[A-Za-z0-9_-]{40,}"),
    ("render_key",          B,    r"rnd_[A-Za-z0-9]{28,}"),
    ("tailscale_key",       B,    r"tskey-(?:[a-z]{2,10}-)?[A-Za-z0-9]{8,}(?:-[A-Za-z0-9]{16,})?"),
    ("onepassword_token",   B,    r"ops_eyJ[A-Za-z0-9+/=_-]{40,}"),
    ("sourcegraph_token",   B,    r"sgp_(?:[0-9a-f]{16}_|local_)?[0-9a-f]{40}"),
    ("buildkite_token",     B,    r"bk[a-z]{1,3}_[0-9a-f]{40}"),
    ("circleci_token",      B,    r"CCIPAT_[A-Za-z0-9]{8,}_[0-9a-f]{40}"),
    ("heroku_key",          B,    r"HRKU-[A-Za-z0-9_-]{36,}"),
    ("dropbox_token",       B,    r"sl\.[A-Za-z0-9_-]{80,}"),
];

/// The rows as one pattern: two groups each, what is kept and what is removed.
pub(super) fn pattern() -> String {
    let rows = PREFIXES.map(|(_kind, before, secret)| format!("({before})({secret})"));
    rows.join("|")
}
