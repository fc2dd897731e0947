//! Keys that are recognised by themselves. They are put together here from a prefix and random characters, so that no tool
//! takes this file for a leak.

use crate::{assert_masked, random};

const HEX: &str = "0123456789abcdef";
const LOWER: &str = "abcdefghijklmnopqrstuvwxyz0123456789";
const UPPER: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const BASE32: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const BASE62: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const BASE64: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL64: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// What a key looks like: fixed text, or that many characters of an alphabet.
enum Part {
    Is(&'static str),
    Of(&'static str, usize),
}
use Part::{Is, Of};

/// The issuer, what stands in front and may be read, and the parts of the key.
#[rustfmt::skip]
const KEYS: &[(&str, &str, &[Part])] = &[
    ("OpenAI", "", &[Is("sk-"), Of(BASE62, 48)]),
    ("OpenAI project", "", &[Is("sk-proj-"), Of(URL64, 64), Is("T3BlbkFJ"), Of(URL64, 64)]),
    ("OpenAI service account", "", &[Is("sk-svcacct-"), Of(URL64, 58)]),
    ("Anthropic", "", &[Is("sk-ant-api03-"), Of(URL64, 93), Is("AA")]),
    ("OpenRouter", "", &[Is("sk-or-v1-"), Of(HEX, 64)]),
    ("DeepSeek", "", &[Is("sk-"), Of(HEX, 32)]),
    ("GitHub personal", "", &[Is("ghp_"), Of(BASE62, 36)]),
    ("GitHub fine-grained", "", &[Is("github_pat_11"), Of(UPPER, 20), Is("_"), Of(BASE62, 59)]),
    ("GitHub OAuth", "", &[Is("gho_"), Of(BASE62, 36)]),
    ("GitHub user to server", "", &[Is("ghu_"), Of(BASE62, 36)]),
    ("GitHub server to server", "", &[Is("ghs_"), Of(BASE62, 36)]),
    ("GitHub refresh", "", &[Is("ghr_"), Of(BASE62, 76)]),
    ("GitLab personal", "", &[Is("glpat-"), Of(URL64, 20)]),
    ("GitLab routable", "", &[Is("glpat-"), Of(URL64, 27), Is(".01."), Of(LOWER, 9)]),
    ("GitLab deploy", "", &[Is("gldt-"), Of(URL64, 20)]),
    ("GitLab runner", "", &[Is("glrt-"), Of(URL64, 20)]),
    ("GitLab CI job", "", &[Is("glcbt-64_"), Of(URL64, 20)]),
    ("AWS access key", "", &[Is("AKIA"), Of(BASE32, 16)]),
    ("AWS temporary key", "", &[Is("ASIA"), Of(BASE32, 16)]),
    ("Google API", "", &[Is("AIza"), Of(URL64, 35)]),
    ("Google access", "", &[Is("ya29."), Of(URL64, 120)]),
    ("Google client secret", "", &[Is("GOCSPX-"), Of(URL64, 28)]),
    ("Google refresh", "", &[Is("1//0"), Of(URL64, 60)]),
    ("Slack bot", "", &[Is("xoxb-"), Of("0123456789", 12), Is("-"), Of("0123456789", 13), Is("-"), Of(BASE62, 24)]),
    ("Slack user", "", &[Is("xoxp-"), Of("0123456789", 12), Is("-"), Of("0123456789", 12), Is("-"), Of(HEX, 32)]),
    ("Slack app", "", &[Is("xapp-1-"), Of(UPPER, 11), Is("-"), Of("0123456789", 13), Is("-"), Of(HEX, 64)]),
    ("Slack refresh", "", &[Is("xoxe.xoxp-1-"), Of(BASE62, 150)]),
    ("Slack webhook", "https://hooks.slack.com/services/", &[Is("T"), Of(UPPER, 10), Is("/B"), Of(UPPER, 10), Is("/"), Of(BASE62, 24)]),
    ("Discord webhook", "https://discord.com/api/webhooks/1184093275012345678/", &[Of(URL64, 68)]),
    ("Discord bot", "", &[Is("MTE4"), Of(BASE62, 22), Is("."), Of(URL64, 6), Is("."), Of(URL64, 38)]),
    ("Telegram bot", "110201543:", &[Is("AA"), Of(URL64, 32), Is("w")]),
    ("Telegram address", "https://api.telegram.org/bot7110201543:", &[Is("AA"), Of(URL64, 32), Is("w")]),
    ("Stripe live", "", &[Is("sk_live_"), Of(BASE62, 24)]),
    ("Stripe long", "", &[Is("sk_live_51"), Of(BASE62, 97)]),
    ("Stripe test", "", &[Is("sk_test_"), Of(BASE62, 24)]),
    ("Stripe restricted", "", &[Is("rk_live_"), Of(BASE62, 24)]),
    ("Stripe webhook", "", &[Is("whsec_"), Of(BASE62, 32)]),
    ("npm", "", &[Is("npm_"), Of(BASE62, 36)]),
    ("PyPI", "", &[Is("pypi-AgEIcHlwaS5vcmc"), Of(URL64, 150)]),
    ("RubyGems", "", &[Is("rubygems_"), Of(HEX, 48)]),
    ("crates.io", "", &[Is("cio"), Of(BASE62, 32)]),
    ("Docker Hub", "", &[Is("dckr_pat_"), Of(URL64, 27)]),
    ("Vault service", "", &[Is("hvs."), Of(URL64, 90)]),
    ("Vault batch", "", &[Is("hvb."), Of(URL64, 140)]),
    ("age", "", &[Is("AGE-SECRET-KEY-1"), Of(UPPER, 58)]),
    ("DigitalOcean personal", "", &[Is("dop_v1_"), Of(HEX, 64)]),
    ("DigitalOcean OAuth", "", &[Is("doo_v1_"), Of(HEX, 64)]),
    ("DigitalOcean refresh", "", &[Is("dor_v1_"), Of(HEX, 64)]),
    ("Twilio", "", &[Is("SK"), Of(HEX, 32)]),
    ("SendGrid", "", &[Is("SG."), Of(URL64, 22), Is("."), Of(URL64, 43)]),
    ("Mailgun", "", &[Is("key-"), Of(HEX, 32)]),
    ("Mailchimp", "", &[Of(HEX, 32), Is("-us14")]),
    ("Shopify admin", "", &[Is("shpat_"), Of(HEX, 32)]),
    ("Shopify shared", "", &[Is("shpss_"), Of(HEX, 32)]),
    ("Square", "", &[Is("EAAA"), Of(URL64, 60)]),
    ("Square OAuth", "", &[Is("sq0csp-"), Of(URL64, 43)]),
    ("Groq", "", &[Is("gsk_"), Of(BASE62, 52)]),
    ("Hugging Face", "", &[Is("hf_"), Of(BASE62, 34)]),
    ("NVIDIA", "", &[Is("nvapi-"), Of(URL64, 64)]),
    ("Replicate", "", &[Is("r8_"), Of(BASE62, 37)]),
    ("Perplexity", "", &[Is("pplx-"), Of(BASE62, 48)]),
    ("xAI", "", &[Is("xai-"), Of(BASE62, 80)]),
    ("Databricks", "", &[Is("dapi"), Of(HEX, 32)]),
    ("Linear", "", &[Is("lin_api_"), Of(BASE62, 40)]),
    ("Notion", "", &[Is("ntn_"), Of(BASE62, 46)]),
    ("Notion, old", "", &[Is("secret_"), Of(BASE62, 43)]),
    ("Supabase", "", &[Is("sbp_"), Of(HEX, 40)]),
    ("Doppler", "", &[Is("dp.pt."), Of(BASE62, 43)]),
    ("Pulumi", "", &[Is("pul-"), Of(HEX, 40)]),
    ("Terraform Cloud", "", &[Of(BASE62, 14), Is(".atlasv1."), Of(BASE62, 67)]),
    ("Azure client secret", "", &[Of(BASE62, 3), Is("8Q~"), Of(BASE62, 34)]),
    ("Cloudflare", "", &[Is("cfut_"), Of(BASE62, 40)]),
    ("Grafana", "", &[Is("glsa_"), Of(BASE62, 32), Is("_"), Of(HEX, 8)]),
    ("New Relic", "", &[Is("NRAK-"), Of(UPPER, 27)]),
    ("Sentry", "", &[Is("sntryu_"), Of(HEX, 64)]),
    ("Postman", "", &[Is("PMAK-"), Of(HEX, 24), Is("-"), Of(HEX, 34)]),
    ("Airtable", "", &[Is("pat"), Of(BASE62, 14), Is("."), Of(HEX, 64)]),
    ("Figma", "", &[Is("figd_"), Of(URL64, 40)]),
    ("Atlassian", "", &[Is("ATATT3xFfGF0"), Of(URL64, 180)]),
    ("Netlify", "", &[Is("nfp_"), Of(BASE62, 36)]),
    ("Fly", "", &[Is("fm2_"), Of(BASE64, 200)]),
    ("Tailscale", "", &[Is("tskey-auth-"), Of(BASE62, 16), Is("-"), Of(BASE62, 32)]),
    ("Resend", "", &[Is("re_"), Of(BASE62, 8), Is("_"), Of(BASE62, 24)]),
    ("Tavily", "", &[Is("tvly-"), Of(BASE62, 32)]),
    ("ElevenLabs", "", &[Is("sk_"), Of(HEX, 48)]),
    ("LangSmith", "", &[Is("lsv2_pt_"), Of(HEX, 32), Is("_"), Of(HEX, 10)]),
    ("JSON web token", "", &[Is("eyJ"), Of(BASE62, 33), Is(".eyJ"), Of(BASE62, 60), Is("."), Of(URL64, 43)]),
    ("encrypted JSON web token", "", &[Is("eyJ"), Of(BASE62, 40), Is("."), Of(URL64, 43), Is("."), Of(URL64, 16), Is("."), Of(URL64, 60), Is("."), Of(URL64, 22)]),
    ("base64 of 32 bytes and more", "", &[Of(BASE64, 62), Is("==")]),
];

/// Where keys are found.
const AROUND: [&str; 10] = [
    "KEY",
    "The key is KEY.",
    "2026-11-18T10:00:00Z WARN upstream said: invalid key KEY, status 401",
    r#"{"user":"ann","value":"KEY","n":1}"#,
    r#"{"body":"{\"value\":\"KEY\"}"}"#,
    "  - name: UPSTREAM\n    value: KEY\n    more: x",
    "curl -H 'X-Custom: KEY' https://api.example.com/v1",
    "client = Client('KEY', timeout=3)",
    "[link](https://api.example.com/v1/items?x=KEY&limit=3)",
    "(KEY)",
];

fn keys() -> impl Iterator<Item = (&'static str, &'static str, String)> {
    KEYS.iter().zip(1..).map(|((issuer, before, parts), seed)| {
        let parts = parts.iter().zip(seed * 100..).map(|(part, seed)| match part {
            Is(text) => (*text).to_owned(),
            Of(alphabet, length) => random(alphabet, *length, seed),
        });
        (*issuer, *before, parts.collect())
    })
}

#[test]
fn keys_are_masked_in_full_wherever_they_stand() {
    assert!(KEYS.len() >= 50);
    for (issuer, before, key) in keys() {
        for around in AROUND {
            println!("{issuer}");
            assert_masked(&around.replace("KEY", &format!("{before}{key}")), &key);
        }
    }
}

#[test]
fn many_keys_in_one_text_are_all_masked() {
    let all: Vec<String> = keys().map(|(_, before, key)| format!("{before}{key}")).collect();
    for text in [all.join(" "), all.join("\n"), all.join(", ")] {
        for (_, _, key) in keys() {
            assert_masked(&text, &key);
        }
    }
}

#[test]
fn invisible_characters_do_not_hide_a_key() {
    for (issuer, before, key) in keys() {
        for hidden in
            ["\u{200B}", "\u{200C}", "\u{200D}", "\u{2060}", "\u{FEFF}", "\u{AD}", "\u{200B}\u{200D}"]
        {
            println!("{issuer}");
            let (head, tail) = key.split_at(key.len() / 2);
            let text = format!("the key is {before}{head}{hidden}{tail} indeed");
            assert_masked(&text, &key);
            let spaced: String = key.chars().flat_map(|char| [char.to_string(), hidden.to_owned()]).collect();
            assert_masked(&format!("the key is {before}{spaced}."), &key);
        }
    }
}

#[test]
fn private_keys_of_every_kind_are_masked() {
    for kind in ["", "RSA ", "EC ", "DSA ", "ENCRYPTED ", "OPENSSH ", "PGP "] {
        let block = if kind == "PGP " { " BLOCK" } else { "" };
        let body: Vec<String> = (1..9).map(|seed| random(BASE64, 64, seed)).collect();
        let key = |gap: &str| {
            format!(
                "-----BEGIN {kind}PRIVATE KEY{block}-----{gap}{}{gap}-----END {kind}PRIVATE KEY{block}-----",
                body.join(gap)
            )
        };
        for text in [key("\n"), key("\r\n"), key("\\n"), key("\n    "), key("\u{200B}\n")] {
            for line in &body {
                assert_masked(&format!("key: |\n  {text}\nnext"), line);
            }
        }
    }
}

#[test]
fn what_gives_no_access_is_left() {
    let hex = random(HEX, 32, 7);
    for text in [
        format!("pk_live_{}", random(BASE62, 24, 1)),
        format!("AC{hex}"),
        format!("AROA{}", random(BASE32, 17, 2)),
        "sk-loading-indicator sk-folding-cube-animation".to_owned(),
        "xoxb-your-token-goes-here-please".to_owned(),
        "s.someMethodThatIsSoLong(1)".to_owned(),
        "npm_config_registry and npm_lifecycle_event and pypi-publish-to-the-test-index-from-a-workflow"
            .to_owned(),
        format!("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{} ann@example.com", random(BASE64, 43, 3)),
    ] {
        assert_eq!(talaria_redact::shapes(&text), text);
    }
}
