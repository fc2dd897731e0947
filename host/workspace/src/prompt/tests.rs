//! The pieces of a prompt, their order, and files that cannot be used.

use std::fs;
use std::path::Path;

use super::*;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, path: &str, text: impl AsRef<[u8]>) -> &Self {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    fn assembly(&self) -> Arc<Assembly> {
        let folder = self.0.path().join("configs");
        fs::create_dir_all(&folder).unwrap();
        let places =
            Places { id: "ws-1".into(), folder, shared_plugins: self.0.path().join("shared"), model: None };
        let assembly = Assembly::new(places, Manifest::default());
        assembly.set_tools(true);
        Arc::new(assembly)
    }

    /// The sources of the pieces, relative to the folder.
    fn sources(&self, assembled: &Assembled) -> Vec<String> {
        let root = format!("{}/", self.0.path().display());
        assembled.pieces.iter().map(|piece| piece.source.replace(&root, "")).collect()
    }
}

fn peer(name: &str) -> Peer {
    Peer {
        id: format!("id-{name}"),
        name: name.into(),
        role: String::new(),
        status: "online".into(),
        skills: vec!["x".into(), "y".into()],
    }
}

#[test]
fn pieces_are_in_order_and_name_their_sources() {
    let folder = Folder::new();
    folder
        .write("configs/config.yaml", "model: m\nprompt_files: [a.md, sub/b.md]\nskills: [own, both]\n")
        .write("configs/a.md", "  text of a \n")
        .write("configs/sub/b.md", "text of b")
        .write("configs/MEMORY.md", "remembered")
        .write("configs/skills/own/SKILL.md", "---\nname: Own skill\ndescription: does\n---\nhow to\n")
        .write("configs/skills/both/SKILL.md", "the workspace's")
        .write("configs/skills/own/tools.json", r#"[{"type":"function","function":{"name":"look"}}]"#)
        .write("configs/skills/unnamed/SKILL.md", "not asked for")
        .write("configs/plugins/p/rules/r.md", "rule")
        .write("shared/q/hint.md", "hint")
        .write("shared/q/skills/both/SKILL.md", "the plugin's")
        .write("shared/q/skills/third/SKILL.md", "third");
    let assembly = folder.assembly();
    assembly.platform_context.store(Arc::new(PlatformContext {
        instructions: "be kind".into(),
        peers: vec![peer("ann")],
        children: vec![peer("ben")],
        parent: vec![("plan.md".into(), "the plan".into())],
    }));
    let assembled = assembly.current();
    assert_eq!(assembled.troubles, []);
    let expected = [
        "platform: instructions",
        "configs/a.md",
        "configs/sub/b.md",
        "configs/MEMORY.md",
        "platform: shared context: plan.md",
        "configs/plugins/p/rules/r.md",
        "shared/q/hint.md",
        "platform: children",
        "configs/skills/own/SKILL.md",
        "configs/skills/both/SKILL.md",
        "shared/q/skills/third/SKILL.md",
        "platform: peers",
        "built in: waiting",
        "built in: delegation",
    ];
    assert_eq!(folder.sources(&assembled), expected);
    let prompt = assembled.workspace.system_prompt.clone().unwrap();
    // The Python runtime's output for the same files.
    let begin = "# Platform Instructions\n\nbe kind\ntext of a\ntext of b\nremembered\n\n## Parent Context\n\n\
                 The following context was shared by your parent workspace:\n\n### plan.md\nthe plan\n\n\
                 \n## Platform Rules\n\nrule\n\n\n## Platform Guidelines\n\nhint\n\n## Your Team";
    assert!(prompt.starts_with(begin), "{prompt}");
    let skills = "\n## Your Skills\n\n### Own skill\ndoes\nhow to\n\n### both\nthe workspace's\n\n### third\nthird\n\n## Your Peers";
    assert!(prompt.contains(skills), "{prompt}");
    assert!(
        prompt.contains("- **ann** (id: `id-ann`, status: online)\n  Skills: x, y\n\nUse the"),
        "{prompt}"
    );
    assert_eq!(assembled.workspace.model.as_deref(), Some("m"));
    assert_eq!(assembled.workspace.tools, r#"[{"type":"function","function":{"name":"look"}}]"#);
}

#[tokio::test]
async fn an_edit_reaches_the_next_turn_and_unchanged_files_are_not_read_again() {
    let folder = Folder::new();
    folder.write("configs/config.yaml", "").write("configs/system-prompt.md", "one");
    let assembly = folder.assembly();
    let prompt = async || Arc::clone(&assembly).workspace(None).await.unwrap().system_prompt.clone();
    assert_eq!(prompt().await.as_deref(), Some("one"));
    folder.write("configs/system-prompt.md", "two");
    assert_eq!(prompt().await.as_deref(), Some("two"));
    folder.write("configs/config.yaml", "prompt_files: [new.md]\n").write("configs/new.md", "three");
    assert_eq!(prompt().await.as_deref(), Some("three"));
    let far = std::time::SystemTime::now() - Duration::from_secs(60);
    for name in ["config.yaml", "new.md", ""] {
        fs::File::open(folder.0.path().join("configs").join(name)).unwrap().set_modified(far).unwrap();
    }
    let one = assembly.current();
    assert!(Arc::ptr_eq(&one, &assembly.current()), "unchanged files are not read again");
}

#[test]
fn a_file_that_cannot_be_used_is_one_problem_and_the_rest_works() {
    let folder = Folder::new();
    folder
        .write("configs/config.yaml", "prompt_files: [good.md, missing.md, ../out.md, huge.md, binary.md, \"a\\nb\"]\nskills: [gone, bad, ../up]\ntools: [{no: tool}]\n")
        .write("configs/good.md", "good")
        .write("configs/huge.md", vec![b'x'; FILE_BYTES + 1])
        .write("configs/binary.md", b"\x00\xff")
        .write("configs/skills/bad/SKILL.md", "---\na: [\n---\nstill instructions");
    let assembly = folder.assembly();
    let assembled = assembly.current();
    assert_eq!(folder.sources(&assembled), ["configs/good.md", "configs/skills/bad/SKILL.md"]);
    let said: Vec<_> = assembled.troubles.iter().map(ToString::to_string).collect();
    assert_eq!(said.len(), 9, "{said:#?}");
    assert!(said.iter().all(|said| !said.contains('\n')), "{said:#?}");

    // An invalid manifest is ignored in favour of the last valid one.
    folder.write("configs/config.yaml", "a: [");
    let assembled = assembly.current();
    assert!(folder.sources(&assembled).contains(&"configs/good.md".to_owned()));
    assert!(
        assembled.troubles.iter().any(|trouble| trouble.to_string().contains("using its last valid content"))
    );
}

#[test]
fn a_missing_folder_gives_an_empty_prompt_and_no_panic() {
    let places = Places {
        id: "ws-1".into(),
        folder: Path::new("/no/such/folder").into(),
        shared_plugins: Path::new("/no/such/plugins").into(),
        model: Some("given".into()),
    };
    let assembled = Assembly::new(places, Manifest::default()).current();
    assert_eq!(
        (assembled.workspace.system_prompt.as_deref(), assembled.workspace.model.as_deref()),
        (None, Some("given"))
    );
    assert_eq!(assembled.workspace.tools, "[]");
}

#[test]
fn a_prompt_is_bounded() {
    let folder = Folder::new();
    let names: Vec<_> = (0..6).map(|n| format!("f{n}.md")).collect();
    folder.write("configs/config.yaml", format!("prompt_files: [{}]", names.join(", ")));
    for name in &names {
        folder.write(&format!("configs/{name}"), vec![b'x'; FILE_BYTES]);
    }
    let assembled = folder.assembly().current();
    assert_eq!((assembled.pieces.len(), assembled.troubles.len()), (3, 3));
    assert!(assembled.workspace.system_prompt.as_ref().unwrap().len() <= PROMPT_BYTES);
}

#[test]
fn the_prompt_orders_to_delegate_only_where_the_tools_are_served() {
    let folder = Folder::new();
    let assembly = folder.assembly();
    assembly.platform_context.store(Arc::new(PlatformContext {
        peers: vec![peer("ann")],
        children: vec![peer("ben")],
        ..PlatformContext::default()
    }));
    let prompt = || assembly.current().workspace.system_prompt.clone().unwrap_or_default();
    assert!(prompt().contains("with `mcp__molecule__delegate_task`, before"), "{}", prompt());
    assert!(!prompt().contains("delegate_to_workspace"));
    assembly.set_tools(false);
    assert_eq!(prompt(), "", "neither the team nor the peers");
    assembly.set_tools(true);
    assert!(prompt().contains("Your Team"));
}

#[tokio::test]
async fn a_turn_reads_the_ticket_of_its_conversation_if_it_can_delegate() {
    let folder = Folder::new();
    let assembly = folder.assembly();
    let tickets = Arc::new(Tickets::new("key".into()));
    assembly.set_tickets(Arc::clone(&tickets));
    let turn = |context: &str| CallingTurn {
        owner: talaria_turns::Principal::anyone(),
        task: talaria_turns::TaskId::fresh(),
        context: context.parse().unwrap(),
        traceparent: None,
    };
    let prompt = async |turn: Option<CallingTurn>| {
        let workspace = Arc::clone(&assembly).workspace(turn).await.unwrap();
        workspace.system_prompt.clone().unwrap_or_default()
    };
    assert!(!prompt(Some(turn("c"))).await.contains("ticket"), "there is nobody to delegate to");
    let peers = vec![peer("ann")];
    assembly.platform_context.store(Arc::new(PlatformContext { peers, ..PlatformContext::default() }));
    let ticket = tickets.of(&turn("c").owner, &turn("c").context);
    assert!(prompt(Some(turn("c"))).await.contains(&format!("`ticket` the value `{ticket}`")));
    assert!(!prompt(Some(turn("d"))).await.contains(&ticket));
    assert!(!prompt(None).await.contains("ticket"), "a probe has no conversation");
    assembly.set_tools(false);
    assert!(!prompt(Some(turn("c"))).await.contains("ticket"));
}
