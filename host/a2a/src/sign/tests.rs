use aws_lc_rs::signature::{ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaSigningAlgorithm, VerificationAlgorithm};
use base64::engine::general_purpose::STANDARD;

use super::*;
use crate::card::{Addresses, CardConfig, Extension, Provider, Skill};

/// PEM as `openssl genpkey` writes it.
fn pem(label: &str, der: &[u8]) -> String {
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der))
}

fn ed25519() -> Vec<u8> {
    Ed25519KeyPair::generate_pkcs8v1(&SystemRandom::new()).unwrap().as_ref().to_vec()
}

fn ecdsa(algorithm: &'static EcdsaSigningAlgorithm) -> Vec<u8> {
    EcdsaKeyPair::generate_pkcs8(algorithm, &SystemRandom::new()).unwrap().as_ref().to_vec()
}

fn signer(pkcs8: &[u8]) -> CardSigner {
    let pem = SecretString::from(pem("PRIVATE KEY", pkcs8));
    CardSigner::from_pem(&pem, "key-1", Some("https://acme.example/jwks.json")).unwrap()
}

fn public(signer: &CardSigner) -> (&'static dyn VerificationAlgorithm, Vec<u8>) {
    match &signer.0.key {
        Key::Ed25519(pair) => (&ED25519, pair.public_key().as_ref().to_vec()),
        Key::P256(pair) => (&ECDSA_P256_SHA256_FIXED, pair.public_key().as_ref().to_vec()),
    }
}

fn both() -> [CardSigner; 2] {
    [signer(&ed25519()), signer(&ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING))]
}

/// The number of a card's signatures that are valid for this payload.
fn valid_signatures(signer: &CardSigner, card: &Value, payload: &[u8]) -> usize {
    let (algorithm, key) = public(signer);
    let is_valid = |signature: &&Value| {
        let text = |name: &str| signature[name].as_str().unwrap();
        let input = format!("{}.{}", text("protected"), URL_SAFE_NO_PAD.encode(payload));
        let signature = URL_SAFE_NO_PAD.decode(text("signature")).unwrap();
        UnparsedPublicKey::new(algorithm, &key).verify(input.as_bytes(), &signature).is_ok()
    };
    card["signatures"].as_array().unwrap().iter().filter(is_valid).count()
}

/// Verifies by the text of the specification.
fn valid_by_specification(signer: &CardSigner, card: &Value) -> usize {
    valid_signatures(signer, card, &canonical(&present(card, CARD)).unwrap())
}

/// Verifies as the SDKs do.
fn valid_by_sdks(signer: &CardSigner, card: &Value) -> usize {
    valid_signatures(signer, card, &canonical(&cleaned(&present(card, CARD)).unwrap()).unwrap())
}

fn at(url: &str) -> Addresses {
    Addresses { url: url.into(), grpc: None }
}

fn full() -> CardConfig {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let skill = |id: &str| Skill {
        id: id.into(),
        name: "Suche".into(),
        description: "findet Bücher über \u{1f309}".into(),
        tags: texts(&["papers"]),
        examples: texts(&["find \"it\""]),
        input_modes: texts(&["text/plain"]),
        output_modes: texts(&["text/markdown"]),
    };
    CardConfig {
        provider: Some(Provider { organization: "ACME".into(), url: "https://acme.example".into() }),
        documentation_url: Some("https://acme.example/desk".into()),
        icon_url: Some("https://acme.example/desk.png".into()),
        streaming: false,
        extended_card: true,
        extended_skills: vec![skill("restart")],
        extensions: vec![
            Extension { uri: "urn:cite".into(), required: false, description: Some("cites".into()) },
            Extension { uri: "urn:sign".into(), required: true, description: None },
        ],
        skills: vec![skill("search")],
        ..CardConfig::default()
    }
}

#[test]
fn the_canonical_form_follows_rfc_8785() {
    let text = |value: Value| String::from_utf8(canonical(&value).unwrap()).unwrap();
    // Section 3.2.2.
    let sample: Value = serde_json::from_str(
        r#"{
          "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
          "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
          "literals": [null, true, false]
        }"#,
    )
    .unwrap();
    let expected = r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}"#;
    assert_eq!(text(sample), expected);
    // Section 3.2.3: keys are sorted by UTF-16 units, so the emoji, a surrogate pair, comes before U+FB33.
    let sample = json!({
        "\u{20ac}": "Euro Sign", "\r": "Carriage Return", "\u{fb33}": "Hebrew Letter Dalet With Dagesh",
        "1": "One", "\u{1f600}": "Emoji: Grinning Face", "\u{80}": "Control", "\u{f6}": "Latin Small Letter O With Diaeresis",
    });
    let order = ["\\r", "1", "\u{80}", "\u{f6}", "\u{20ac}", "\u{1f600}", "\u{fb33}"];
    let found = text(sample);
    let places: Vec<_> = order.iter().map(|key| found.find(&format!("\"{key}\":")).unwrap()).collect();
    assert!(places.is_sorted(), "{found}");
}

#[test]
fn keeps_and_omits_fields_as_the_specification_shows() {
    // The example of section 8.4.1 of the specification.
    let card = json!({
        "name": "Example Agent",
        "description": "",
        "capabilities": { "streaming": false, "pushNotifications": false, "extensions": [] },
        "skills": [],
    });
    let expected = r#"{"capabilities":{"pushNotifications":false,"streaming":false},"description":"","name":"Example Agent","skills":[]}"#;
    assert_eq!(String::from_utf8(canonical(&present(&card, CARD)).unwrap()).unwrap(), expected);
    let card = json!({
        "iconUrl": "", "url": "http://old", "provider": {}, "securitySchemes": {},
        "capabilities": { "extensions": [{ "uri": "urn:x", "required": false, "description": "" }] },
        "securityRequirements": [{ "schemes": { "bearer": { "list": [] } } }],
    });
    let expected = json!({
        "iconUrl": "", "provider": {}, "capabilities": { "extensions": [{ "uri": "urn:x" }] },
        "securityRequirements": [{ "schemes": { "bearer": {} } }],
    });
    assert_eq!(present(&card, CARD), expected);
    assert_eq!(cleaned(&expected), Some(json!({ "capabilities": { "extensions": [{ "uri": "urn:x" }] } })));
}

#[test]
fn every_field_of_our_cards_is_signed() {
    let (mut one, union) = full().documents(&at("https://a.example"), true, true, None);
    assert_eq!(present(&one, CARD), present(&union, CARD), "both documents are the same card");
    let list = one.pointer_mut("/securityRequirements/0/schemes/bearer").unwrap().as_object_mut().unwrap();
    assert!(list.remove("list").is_some(), "the only default value in the card");
    assert_eq!(present(&one, CARD), one);
}

#[test]
fn a_signature_is_valid_for_both_documents_by_either_method() {
    for signer in both() {
        for (config, secured) in
            [(CardConfig::default(), false), (CardConfig::default(), true), (full(), true)]
        {
            let (one, union) = config.documents(&at("https://a.example"), secured, secured, Some(&signer));
            assert_eq!(one["signatures"], union["signatures"]);
            assert_eq!(one["signatures"].as_array().unwrap().len(), if secured { 2 } else { 1 });
            for card in [&one, &union] {
                assert_eq!(valid_by_specification(&signer, card), 1, "{signer:?} {card}");
                assert_eq!(valid_by_sdks(&signer, card), 1, "{signer:?} {card}");
            }
        }
    }
}

#[test]
fn a_changed_card_has_no_valid_signature() {
    for signer in both() {
        let (card, _) = full().documents(&at("https://a.example"), true, true, Some(&signer));
        for (place, value) in [
            ("/name", json!("Evil desk")),
            ("/supportedInterfaces/0/url", json!("https://evil.example")),
            ("/capabilities/streaming", json!(true)),
            ("/capabilities/extensions/1/required", json!(false)),
            ("/securitySchemes/bearer/httpAuthSecurityScheme/scheme", json!("Basic")),
            ("/skills/1/tags", json!([])),
            ("/iconUrl", json!("")),
        ] {
            let mut tampered = card.clone();
            *tampered.pointer_mut(place).unwrap() = value;
            assert_eq!(valid_by_specification(&signer, &tampered), 0, "{place}");
            assert_eq!(valid_by_sdks(&signer, &tampered), 0, "{place}");
        }
        let mut header = card.clone();
        let other = URL_SAFE_NO_PAD.encode(r#"{"alg":"none","typ":"JOSE","kid":"key-1"}"#);
        for signature in header["signatures"].as_array_mut().unwrap() {
            signature["protected"] = json!(other);
        }
        assert_eq!(valid_by_specification(&signer, &header) + valid_by_sdks(&signer, &header), 0);
        let stranger = both();
        for stranger in &stranger {
            assert_eq!(valid_by_specification(stranger, &card), 0, "another key");
        }
    }
}

#[test]
fn the_header_names_the_algorithm_and_the_key() {
    for (signer, algorithm) in both().into_iter().zip(["EdDSA", "ES256"]) {
        let header = URL_SAFE_NO_PAD.decode(&signer.0.protected).unwrap();
        let expected = format!(
            r#"{{"alg":"{algorithm}","typ":"JOSE","kid":"key-1","jku":"https://acme.example/jwks.json"}}"#
        );
        assert_eq!(String::from_utf8(header).unwrap(), expected);
    }
    let pem = SecretString::from(pem("PRIVATE KEY", &ed25519()));
    let signer = CardSigner::from_pem(&pem, "key \"2\"", None).unwrap();
    let header = URL_SAFE_NO_PAD.decode(&signer.0.protected).unwrap();
    let header: Value = serde_json::from_slice(&header).unwrap();
    assert_eq!(header, json!({ "alg": "EdDSA", "typ": "JOSE", "kid": "key \"2\"" }));
}

#[test]
fn an_unusable_key_is_rejected_with_a_remedy() {
    use InvalidSigningKey::{Broken, Encrypted, Missing, Nameless, OldForm, Public, Several, Unsupported};
    let good = pem("PRIVATE KEY", &ed25519());
    let error = |text: &str| CardSigner::from_pem(&SecretString::from(text), "k", None).err();
    for (text, why) in [
        (String::new(), Missing),
        ("hunter2".into(), Missing),
        (good.replace("-----END PRIVATE KEY-----", ""), Broken),
        (good.replace("MC4C", "M?4C"), Broken),
        (pem("PRIVATE KEY", b"no key"), Unsupported),
        (pem("PRIVATE KEY", &ecdsa(&ECDSA_P384_SHA384_FIXED_SIGNING)), Unsupported),
        (pem("RSA PRIVATE KEY", b"rsa"), Unsupported),
        (pem("EC PARAMETERS", b"p256") + &pem("EC PRIVATE KEY", b"sec1"), OldForm),
        (pem("ENCRYPTED PRIVATE KEY", b"secret"), Encrypted),
        (
            "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END EC PRIVATE KEY-----\n"
                .into(),
            Encrypted,
        ),
        (pem("PUBLIC KEY", b"public"), Public),
        (pem("CERTIFICATE", b"public"), Public),
        (format!("{good}{good}"), Several),
    ] {
        assert_eq!(error(&text), Some(why), "{text}");
        assert!(why.to_string().contains("openssl") || why == Several, "the remedy is named: {why}");
    }
    let key = SecretString::from(good.clone());
    assert_eq!(CardSigner::from_pem(&key, "", None).err(), Some(Nameless));
    let around = format!("some words\n{}\n{good}", pem("CERTIFICATE", b"beside it"));
    assert_eq!(error(&around), None, "other content of the file does not matter");
    assert_eq!(error(&good.replace('\n', "\r\n")), None);
}

#[test]
fn a_signer_does_not_show_its_key() {
    let key = ed25519();
    let shown = format!("{:?}", signer(&key));
    assert_eq!(shown, r#"CardSigner { alg: "EdDSA", kid: "key-1", .. }"#);
}
