//! `examples/image`: a volume is enough to add an executor. There is no container engine here, so the tests parse the files
//! and run the image's command with its folders below a temporary one.

use std::path::Path;

use talaria_client::{Delivery, Message};
use talaria_fakes::guest;

use crate::bridge::{client_with_token, talaria};

fn file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/image").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Parses the instructions of a Containerfile and joins continued lines.
fn instructions(text: &str) -> Vec<(String, String)> {
    let text = text.replace("\\\n", " ");
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, rest) = line.split_once(' ').unwrap_or_else(|| panic!("no instruction: {line}"));
            (name.to_owned(), rest.trim().to_owned())
        })
        .collect()
}

fn list(instructions: &[(String, String)], name: &str) -> Vec<String> {
    let found = instructions.iter().rfind(|(known, _)| known == name);
    let (_, list) = found.unwrap_or_else(|| panic!("no {name}"));
    serde_json::from_str(list).unwrap_or_else(|error| panic!("{name} {list}: {error}"))
}

/// Returns the list below a key of the compose file's service.
fn items(compose: &str, key: &str) -> Vec<String> {
    let below = compose.lines().skip_while(|line| line.trim() != format!("{key}:")).skip(1);
    let items = below.map_while(|line| line.trim().strip_prefix("- "));
    items.map(|item| item.trim_matches('"').to_owned()).collect()
}

#[test]
fn the_image_and_the_compose_file_agree() {
    let containerfile = file("Containerfile");
    let instructions = instructions(&containerfile);
    let known = ["FROM", "WORKDIR", "COPY", "RUN", "USER", "ENV", "VOLUME", "EXPOSE", "ENTRYPOINT", "CMD"];
    for (name, _) in &instructions {
        assert!(known.contains(&name.as_str()), "unknown instruction {name}");
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (_, copied) in instructions.iter().filter(|(name, rest)| name == "COPY" && !rest.starts_with("--")) {
        let from = copied.split(' ').next().unwrap();
        assert!(root.join(from).exists(), "{from} is not in the repository");
    }
    let volumes = list(&instructions, "VOLUME");
    let compose = file("compose.yaml");
    for mounted in items(&compose, "volumes") {
        let inside = mounted.split(':').nth(1).unwrap();
        assert!(volumes.iter().any(|volume| volume == inside), "{mounted} is not a volume of the image");
    }
    assert!(compose.contains("dockerfile: examples/image/Containerfile"));
    let port = instructions.iter().find(|(name, _)| name == "EXPOSE").map(|(_, port)| port.clone()).unwrap();
    assert!(items(&compose, "ports")[0].ends_with(&format!(":{port}")));
}

#[tokio::test]
async fn the_images_command_loads_an_executor_from_the_volume() {
    let image = tempfile::tempdir().unwrap();
    let inside = |path: &str| format!("{}{path}", image.path().display());
    for folder in ["/executors", "/etc/talaria", "/var/lib/talaria"] {
        std::fs::create_dir_all(inside(folder)).unwrap();
    }
    // The same configuration, with its folders below the temporary one and ports that the system chooses.
    let config = file("talaria.toml")
        .replace("sqlite:/var", &format!("sqlite:{}", inside("/var")))
        .replace("\"/executors\"", &format!("{:?}", inside("/executors")))
        .replace("0.0.0.0:8000", "127.0.0.1:0");
    std::fs::write(
        inside("/etc/talaria/talaria.toml"),
        format!("{config}\n[admin]\nlisten = \"127.0.0.1:0\"\n"),
    )
    .unwrap();
    std::fs::write(inside("/executors/echo.wasm"), guest("echo")).unwrap();

    let instructions = instructions(&file("Containerfile"));
    assert_eq!(list(&instructions, "ENTRYPOINT"), ["talaria"]);
    let arguments = list(&instructions, "CMD").into_iter().map(|argument| match argument.starts_with('/') {
        true => inside(&argument),
        false => argument,
    });
    let mut child = talaria(image.path())
        .args(arguments)
        .args(["--output", "json"])
        .env("TALARIA_TOKEN", "a-token")
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let banner: serde_json::Value = serde_json::Deserializer::from_reader(child.stdout.take().unwrap())
        .into_iter()
        .next()
        .unwrap()
        .unwrap();
    let message = Message::new("by a volume alone").with("talaria/executor", "echo");
    let client = client_with_token(banner["url"].as_str().unwrap(), "a-token");
    let answer = client.send(&message, Delivery::Whole).await.unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(answer.text(), "by a volume alone");
}
