//! Values that are secret because of the name in front of them, in every notation.

use crate::assert_masked;

/// Each with the secret that must not be readable.
#[rustfmt::skip]
const NAMED: &[(&str, &str)] = &[
    // JSON, also in a string, also in a string in a string
    (r#"{"password": "correct horse", "user": "ann"}"#, "correct horse"),
    (r#"{"password":"hunter22"}"#, "hunter22"),
    (r#"{"apiKey":"Zq81mmPx02Lw","n":1}"#, "Zq81mmPx02Lw"),
    (r#"{"client_secret":"b9c1-77aa-4d2f"}"#, "b9c1-77aa-4d2f"),
    (r#"{"clientSecret" : "b9c1-77aa-4d2f"}"#, "b9c1-77aa-4d2f"),
    (r#"{"access-token":"Zq81mmPx02Lw"}"#, "Zq81mmPx02Lw"),
    (r#"{"body":"{\"token\":\"Zq81mmPx02Lw\"}"}"#, "Zq81mmPx02Lw"),
    (r#"{"a":"{\"b\":\"{\\\"refresh_token\\\":\\\"Zq81mmPx02Lw\\\"}\"}"}"#, "Zq81mmPx02Lw"),
    (r#"{"password":"with \" a quote 1"}"#, r#"with \" a quote 1"#),
    (r#"{"password":"ends with a backslash\\","user":"ann"}"#, "ends with a backslash"),
    (r#"{"password":12345678}"#, "12345678"),
    (r#"{"headers":{"X-Api-Key":"Zq81mmPx02Lw"}}"#, "Zq81mmPx02Lw"),
    (r#"[["x-api-key","Zq81mmPx02Lw"],["accept","*/*"]]"#, "Zq81mmPx02Lw"),
    (r#"{"private_key_id":"1","private_key":"Zq81mmPx02LwZq81"}"#, "Zq81mmPx02LwZq81"),
    // YAML, TOML, INI, properties
    ("password: hunter2hunter2", "hunter2hunter2"),
    ("  db_password: 's3cr3t pass'", "s3cr3t pass"),
    ("password: correct-horse-battery-staple", "correct-horse-battery-staple"),
    ("apiKey: \"Zq81mmPx02Lw\"", "Zq81mmPx02Lw"),
    ("api-key: Zq81mmPx02Lw # from the console", "Zq81mmPx02Lw"),
    ("token = 'Zq81mmPx02Lw'", "Zq81mmPx02Lw"),
    ("spring.datasource.password=hunter22", "hunter22"),
    ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYzEXAMPLEKE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzEXAMPLEKE"),
    ("//registry.npmjs.org/:_authToken=Zq81mmPx02Lw", "Zq81mmPx02Lw"),
    // the environment
    ("DB_PASSWORD=hunter22hunter", "hunter22hunter"),
    ("export API_TOKEN=abcdefghijkl", "abcdefghijkl"),
    ("GITLAB_PAT=abcdefghijkl && make", "abcdefghijkl"),
    ("env: SESSION_KEY=abcdefghijkl", "abcdefghijkl"),
    ("DB_PASSWORD=\"two words\" ./run", "two words"),
    ("ERROR login failed: password=hunter22hunter user=ann", "hunter22hunter"),
    // code
    ("password = \"correct horse\"", "correct horse"),
    ("const apiKey = 'Zq81mmPx02Lw';", "Zq81mmPx02Lw"),
    ("let secret = `Zq81mmPx02Lw`;", "Zq81mmPx02Lw"),
    ("const API_TOKEN: &str = \"Zq81mmPx02Lw\";", "Zq81mmPx02Lw"),
    ("password: str = \"hunter22hunter\"", "hunter22hunter"),
    ("private readonly token: string | undefined = 'Zq81mmPx02Lw';", "Zq81mmPx02Lw"),
    ("password := \"hunter22\"", "hunter22"),
    ("'password' => 'hunter22',", "hunter22"),
    (":api_key => \"Zq81mmPx02Lw\"", "Zq81mmPx02Lw"),
    ("char password[] = \"hunter22\";", "hunter22"),
    ("connect(user=\"ann\", password=\"hunter22\")", "hunter22"),
    ("req.Header.Set(\"X-Api-Key\", \"Zq81mmPx02Lw\")", "Zq81mmPx02Lw"),
    ("Server=db;User Id=sa;Password=hunter22!;Database=x", "hunter22!"),
    // headers
    ("Authorization: Basic YW5uOmh1bnRlcjIy", "YW5uOmh1bnRlcjIy"),
    ("authorization: token Zq81mmPx02Lw", "Zq81mmPx02Lw"),
    ("Authorization: Zq81mmPx02Lw", "Zq81mmPx02Lw"),
    ("Proxy-Authorization: Basic YW5uOmh1bnRlcjIy", "YW5uOmh1bnRlcjIy"),
    (r#"{"Authorization": "Basic YW5uOmh1bnRlcjIy"}"#, "YW5uOmh1bnRlcjIy"),
    ("Authorization: AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20261118/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=fe5f80f77d5fa3beca038a248ff027d0445342fe2855ddc963176630326f1024", "fe5f80f77d5fa3beca038a248ff027d0445342fe2855ddc963176630326f1024"),
    ("Authorization: Bearer zzzzzzzzzz", "zzzzzzzzzz"),
    ("X-Api-Key: Zq81mmPx02Lw", "Zq81mmPx02Lw"),
    ("x-goog-api-key: Zq81mmPx02Lw", "Zq81mmPx02Lw"),
    ("Ocp-Apim-Subscription-Key: 0f1e2d3c4b5a69788796a5b4c3d2e1f0", "0f1e2d3c4b5a69788796a5b4c3d2e1f0"),
    ("PRIVATE-TOKEN: Zq81mmPx02Lw", "Zq81mmPx02Lw"),
    ("Cookie: theme=dark; session=0f1e2d3c4b5a6978", "0f1e2d3c4b5a6978"),
    ("Set-Cookie: sid=0f1e2d3c4b5a6978; Path=/; HttpOnly", "0f1e2d3c4b5a6978"),
    // addresses
    ("GET /v1/items?token=Zq81mmPx02Lw&limit=3", "Zq81mmPx02Lw"),
    ("https://x.example.com/cb?code=Zq81mmPx02Lw4f&state=1", "Zq81mmPx02Lw4f"),
    ("https://x.example.com/#access_token=Zq81mmPx02Lw", "Zq81mmPx02Lw"),
    ("https://x.blob.core.windows.net/c/f?sv=2024-11-04&se=2026-11-18&sig=Zq81mmPx02Lw%2BZq81mm%3D", "Zq81mmPx02Lw%2BZq81mm%3D"),
    ("https://b.s3.amazonaws.com/f?X-Amz-Expires=60&X-Amz-Signature=fe5f80f77d5fa3beca038a248ff027d0", "fe5f80f77d5fa3beca038a248ff027d0"),
    ("https://maps.example.com/js?key=Zq81mmPx02Lw", "Zq81mmPx02Lw"),
    ("grant_type=client_credentials&client_id=a&client_secret=abcdefghijkl", "abcdefghijkl"),
    ("<a href=\"/reset?a=1&amp;token=Zq81mmPx02Lw\">", "Zq81mmPx02Lw"),
    ("postgres://app:hunter22@db:5432/x", "hunter22"),
    ("https://ann:Zq81mmPx02Lw@git.example.com/r.git", "Zq81mmPx02Lw"),
    ("AccountName=x;AccountKey=Zq81mmPx02LwZq81mmPx02Lw==;EndpointSuffix=core.windows.net", "Zq81mmPx02LwZq81mmPx02Lw"),
    ("Endpoint=sb://x.servicebus.windows.net/;SharedAccessKeyName=root;SharedAccessKey=Zq81mmPx02Lw=", "Zq81mmPx02Lw"),
    // command lines and elements
    ("mysqldump --password hunter22 --all", "hunter22"),
    ("mysqldump --password=hunter22 --all", "hunter22"),
    ("tool --api-key Zq81mmPx02Lw run", "Zq81mmPx02Lw"),
    ("tool --token=\"Zq81mmPx02Lw\" run", "Zq81mmPx02Lw"),
    ("curl -u ann:hunter22 https://x.example.com", "hunter22"),
    ("curl --user 'ann:hunter22' https://x.example.com", "hunter22"),
    ("<password>hunter22</password>", "hunter22"),
    ("<apiKey>Zq81mmPx02Lw</apiKey>", "Zq81mmPx02Lw"),
    // invisible characters
    ("password: hunter2\u{200B}hunter2", "hunter2"),
    ("pass\u{200B}word: hunter2hunter2", "hunter2hunter2"),
    ("X_TOKEN\u{2060}=abcd\u{FEFF}efgh1234", "efgh1234"),
    ("Bear\u{AD}er zzzzz\u{200D}zzzzz", "zzzzzzzz"),
];

#[test]
fn values_of_telling_names_are_masked_in_every_notation() {
    for (text, secret) in NAMED {
        assert_masked(text, secret);
        assert_masked(&format!("first line\n{text}\nlast line"), secret);
    }
}

#[test]
fn the_name_and_what_follows_stay_readable() {
    for (text, expected) in [
        (r#"{"password":"hunter22","user":"ann"}"#, r#"{"password":"[REDACTED:password]","user":"ann"}"#),
        (r#"{"b":"{\"token\":\"Zq81mmPx02Lw\"}"}"#, r#"{"b":"{\"token\":\"[REDACTED:token]\"}"}"#),
        ("GET /v1?token=Zq81mmPx02Lw&limit=3 HTTP/1.1", "GET /v1?token=[REDACTED:token]&limit=3 HTTP/1.1"),
        ("GET /v1?sig=Zq81mmPx02Lw#top", "GET /v1?sig=[REDACTED:signature]#top"),
        ("Authorization: Basic YW5uOmh1bnRlcjIy", "Authorization: [REDACTED:authorization]"),
        ("X-Api-Key: Zq81mmPx02Lw", "X-Api-Key: [REDACTED:api_key]"),
        ("Cookie: session=0f1e2d3c4b5a6978", "Cookie: [REDACTED:cookie]"),
        ("f(token=Zq81mmPx02Lw)", "f(token=[REDACTED:token])"),
        ("<password>hunter22</password>", "<password>[REDACTED:password]</password>"),
        ("curl -u ann:hunter22 x", "curl -u ann:[REDACTED:password] x"),
        (
            "https://hooks.slack.com/services/T0123456789/B0123456789/abcdefgh12345678",
            "https://hooks.slack.com/services/[REDACTED:slack_webhook]",
        ),
    ] {
        assert_eq!(talaria_redact::shapes(text), expected, "{text}");
    }
}

#[test]
fn what_is_no_value_is_left() {
    for text in [
        r#"{"password": null, "token": true, "secret": "", "api_key": undefined}"#,
        r#"{"password": "${DB_PASSWORD}", "token": "{{ .Values.token }}", "key": "<your-api-key>"}"#,
        "password: str\n  token: Option<String>\n  secret: SecretString,",
        "password: ${DB_PASSWORD}\ntoken: $TOKEN\nsecret: {{ .Values.secret }}\napi_key: *anchor",
        "api_key = os.environ[\"X\"]; token = get_token(); sort_key = operator.itemgetter(\"name\")",
        "API_KEY=your-api-key-here PASSWORD=******** TOKEN=$(cat token) SECRET=${SECRET:-none}",
        "GOOGLE_APPLICATION_CREDENTIALS=/var/run/secrets/gcp/credentials.json PWD=/home/ann/src",
        "fetch(url, { credentials: 'same-origin' })",
        "Authorization: Bearer <token>",
        "headers: { Authorization: `Bearer ${token}` }",
        "curl -u \"$USER:$PASSWORD\" -H \"Authorization: Bearer $API_TOKEN\" https://x.example.com?token=$TOKEN",
        "docker run -u 1000:1000 --user www-data:www-data image",
        "--password PASSWORD  the password; --token <TOKEN>; --api-key string",
        "unexpected token: identifier; the key: value1234; monkey: banana1234 barcode=12345678",
        "if token == \"something1\" || secret != \"something1\" { Token::from(x) }",
        "max_tokens: 4096, \"completion_tokens\": 12345678, tokenizer=o200k_base1234",
        "postgres://user:${DB_PASSWORD}@db/x postgres://<user>:<password>@db/x",
        "socks5h://<username>:<password>@proxy-host:1080 and ('joe', 'password', 'proxy.example.com:3128')",
        "idempotency_key: 550e8400-e29b-41d4-a716-446655440000",
    ] {
        assert_eq!(talaria_redact::shapes(text), text);
    }
}
