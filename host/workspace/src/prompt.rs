//! Assembles the system prompt and the tools from the workspace's files and the platform's context.
//!
//! The order is that of the Python runtime, so that an agent reads the same text: the platform's instructions, the prompt
//! files, memory, files shared by the parent, rules and fragments of plugins, the team, skills, peers. Every piece records
//! its source, which `talaria workspace prompt` shows.
//!
//! An edit reaches the next turn: [`Assembly::workspace`] checks whether a file that it used has changed, which takes a few
//! dozen `stat` calls, and reads everything again if one has. It does not use `notify`, which sees nothing on network,
//! overlay and bind mounts, and whose event could arrive too late for the next turn.
//!
//! A file that cannot be used is left out. Each problem is logged once, and again only after it changes. If `config.yaml`
//! becomes invalid, its last valid content is used.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use async_trait::async_trait;
use serde::Serialize;
use serde_json::Value;
use talaria_turns::{CallingTurn, Workspace, Workspaces};
use tracing::{info, warn};

use crate::folder::{Folder, Reader, Seen, Trouble};
use crate::manifest::Manifest;
use crate::platform_context::{Peer, PlatformContext};
use crate::plugins::{self, Plugin};
use crate::skills::{self, Skill};
use crate::tickets::Tickets;

/// The longest file of a prompt, in bytes: about the length of a book.
pub(crate) const FILE_BYTES: usize = 1 << 20;

/// The longest prompt, in bytes. It is copied into the instance of every turn.
const PROMPT_BYTES: usize = 4 << 20;

/// The timeout for checking the files, after which a turn uses the last assembled workspace: a network file system that
/// hangs must not hang turns.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// The prompt file that is read if `prompt_files` is empty.
const DEFAULT_FILE: &str = "system-prompt.md";

/// Files that are read after the prompt files, if they exist.
const MEMORY: [&str; 2] = ["MEMORY.md", "USER.md"];

const TEAM: &str = "### Coordination rules
1. You coordinate. Delegate and synthesise; do not do the members' work yourself.
2. Send every task to the member or members that fit it, with `mcp__molecule__delegate_task`, before you write anything on it.
3. A task for several members goes to all of them at once; put their results together.
4. When all members are offline or paused, say which; do not attempt the work yourself.
5. When a delegation fails, try another member. Answer by yourself, briefly, only if none can. Never pass on raw errors.
6. Answer in the language of the caller.";

const RESULTS: &str = "
## Waiting for delegated work
If answers are missing when nothing else is left to do, end your turn with a line about what you wait for. They reach you
as the next message, and your reply to that message is what the caller gets.
";

const FAILURES: &str = "
## Handling delegation failures
If a delegation fails:
1. Check if the task is blocking; if not, continue other work
2. Retry transient failures (connection errors) after 30 seconds
3. For persistent failures, report to the caller with context
4. Never silently drop a failed task
";

/// The id of a workspace, its model, and the locations of its files.
#[derive(Debug, Clone)]
pub struct Places {
    /// The workspace's id.
    pub id: String,
    /// The workspace's folder.
    pub folder: PathBuf,
    /// The folder of the plugins that workspaces share.
    pub shared_plugins: PathBuf,
    /// The model, if the environment sets one.
    pub model: Option<String>,
}

/// A piece of the prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Piece {
    /// The file or the platform's resource that the text came from.
    pub source: String,
    /// The text.
    pub text: String,
}

/// An assembled workspace.
#[derive(Debug)]
pub struct Assembled {
    /// The workspace as turns receive it.
    pub workspace: Arc<Workspace>,
    /// The pieces of its prompt, in order.
    pub pieces: Vec<Piece>,
    /// The skills.
    pub skills: Vec<Skill>,
    /// The configuration.
    pub manifest: Manifest,
    /// The problems: everything that was left out, and why.
    pub troubles: Vec<Trouble>,
    plugins: Vec<Plugin>,
    seen: Seen,
    platform_context: Arc<PlatformContext>,
    has_tools: bool,
}

/// Assembles the workspace, and assembles it again after a change.
#[derive(Debug)]
pub struct Assembly {
    places: Places,
    platform_context: Arc<ArcSwap<PlatformContext>>,
    /// The last valid manifest.
    manifest: Mutex<Manifest>,
    last: ArcSwapOption<Assembled>,
    /// Whether the agent has the tools of its team.
    has_tools: AtomicBool,
    /// Names conversations to the tools.
    tickets: OnceLock<Arc<Tickets>>,
}

// === impl Assembly ===

impl Assembly {
    /// Creates the assembly of a workspace whose `config.yaml` is already parsed.
    pub fn new(places: Places, manifest: Manifest) -> Self {
        let platform_context = Arc::default();
        let (manifest, last) = (Mutex::new(manifest), ArcSwapOption::empty());
        let has_tools = AtomicBool::new(false);
        Self { places, platform_context, manifest, last, has_tools, tickets: OnceLock::new() }
    }

    /// Reads and assembles a workspace for the first time. Problems are returned in [`Assembled::troubles`] and are not
    /// logged: the caller reports them.
    ///
    /// # Errors
    /// If `config.yaml` cannot be used at all.
    pub fn open(places: Places) -> Result<Self, Trouble> {
        let (mut manifest, _) = Manifest::read(&places.folder)?;
        let platform_context = Arc::default();
        let first = assemble(&places, &mut manifest, Arc::clone(&platform_context), false);
        let assembly = Self {
            platform_context: Arc::new(ArcSwap::new(platform_context)),
            last: ArcSwapOption::from_pointee(first),
            ..Self::new(places, manifest)
        };
        Ok(assembly)
    }

    /// The locations of the workspace's files.
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// Says whether the agent has the tools of its team. Only then does the prompt name them, and the team.
    pub fn set_tools(&self, has_tools: bool) {
        self.has_tools.store(has_tools, Ordering::Relaxed);
    }

    /// Gives each turn the ticket of its conversation.
    pub(crate) fn set_tickets(&self, tickets: Arc<Tickets>) {
        let _ = self.tickets.set(tickets);
    }

    /// The workspace as a turn sees it: with the ticket of its conversation, if there is somebody to delegate to.
    fn seen_by(&self, turn: Option<&CallingTurn>, assembled: &Assembled) -> Arc<Workspace> {
        let (Some(turn), Some(tickets), true) = (turn, self.tickets.get(), assembled.can_delegate()) else {
            return Arc::clone(&assembled.workspace);
        };
        let mut workspace = Workspace::clone(&assembled.workspace);
        let prompt = workspace.system_prompt.get_or_insert_default();
        prompt.push_str(&tickets.prompt(&turn.owner, &turn.context));
        Arc::new(workspace)
    }

    pub(crate) fn platform_context(&self) -> Arc<ArcSwap<PlatformContext>> {
        Arc::clone(&self.platform_context)
    }

    /// Returns the current workspace. Blocks: it checks the files and reads them again after a change.
    pub fn current(&self) -> Arc<Assembled> {
        // The lock admits one caller at a time; the others then find its result in `last`.
        let mut manifest = self.manifest.lock().unwrap_or_else(PoisonError::into_inner);
        let platform_context = self.platform_context.load_full();
        let last = self.last.load_full();
        let has_tools = self.has_tools.load(Ordering::Relaxed);
        let is_current = |last: &&Arc<Assembled>| {
            Arc::ptr_eq(&last.platform_context, &platform_context)
                && last.has_tools == has_tools
                && last.seen.is_current()
        };
        if let Some(last) = last.as_ref().filter(is_current) {
            return Arc::clone(last);
        }
        let fresh = Arc::new(assemble(&self.places, &mut manifest, platform_context, has_tools));
        let logged = last.as_ref().map(|last| last.troubles.as_slice()).unwrap_or_default();
        for trouble in fresh.troubles.iter().filter(|trouble| !logged.contains(trouble)) {
            warn!(%trouble, "cannot use part of the workspace");
        }
        if let Some(last) = &last {
            for key in fresh.manifest.restart_keys(&last.manifest) {
                warn!(key, "a change in config.yaml needs a restart of this host");
            }
        }
        self.last.store(Some(Arc::clone(&fresh)));
        fresh
    }

    /// Returns the workspace as it was last read, without a look at the files.
    pub fn last(&self) -> Option<Arc<Assembled>> {
        self.last.load_full()
    }

    /// Appends the plugins' texts to the memory file, unless they are already in it.
    pub fn install_plugins(&self) {
        let plugins = &self.current().plugins;
        match plugins::install(plugins, &Folder::open(&self.places.folder)) {
            Ok(0) => {}
            Ok(blocks) => info!(blocks, file = plugins::MEMORY_FILE, "wrote plugins to the memory file"),
            Err(trouble) => warn!(%trouble, "plugins not installed"),
        }
    }
}

#[async_trait]
impl Workspaces for Assembly {
    async fn workspace(self: Arc<Self>, turn: Option<CallingTurn>) -> Option<Arc<Workspace>> {
        let assembly = Arc::clone(&self);
        let current = tokio::task::spawn_blocking(move || assembly.current());
        match tokio::time::timeout(CHECK_TIMEOUT, current).await {
            Ok(Ok(assembled)) => Some(self.seen_by(turn.as_ref(), &assembled)),
            _ => {
                warn!(timeout = ?CHECK_TIMEOUT, "workspace folder does not respond; using the last prompt");
                self.last.load().as_ref().map(|last| self.seen_by(turn.as_ref(), last))
            }
        }
    }
}

// === impl Assembled ===

impl Assembled {
    /// Whether the agent has tools to delegate with, and somebody to delegate to.
    fn can_delegate(&self) -> bool {
        self.has_tools
            && !(self.platform_context.peers.is_empty() && self.platform_context.children.is_empty())
    }
}

// === assembling ===

fn assemble(
    places: &Places,
    manifest: &mut Manifest,
    platform_context: Arc<PlatformContext>,
    has_tools: bool,
) -> Assembled {
    let mut reader = Reader::default();
    let folder = Folder::open(&places.folder);
    match Manifest::read_with(&folder, &mut reader) {
        Ok(fresh) => *manifest = fresh,
        Err(trouble) => {
            reader.trouble(&trouble.path, format!("{}; using its last valid content", trouble.what))
        }
    }
    let own = reader.enter(&folder, "plugins");
    let shared = Folder::open(&places.shared_plugins);
    let plugins = plugins::load(&own.into_iter().chain([shared]).collect::<Vec<_>>(), &mut reader);
    let mut skills = Vec::new();
    let runtime = manifest.runtime.as_deref();
    if let Some(folder) = reader.enter(&folder, "skills") {
        skills::load(&folder, &manifest.skills, runtime, &mut reader, &mut skills);
    }
    for (folder, names) in plugins.iter().flat_map(|plugin| &plugin.skills) {
        skills::load(folder, names, runtime, &mut reader, &mut skills);
    }
    let mut pieces = Vec::new();
    if !platform_context.instructions.is_empty() {
        piece(
            &mut pieces,
            "platform: instructions",
            ["# Platform Instructions\n", &platform_context.instructions],
        );
    }
    prompt_files(&folder, manifest, &mut reader, &mut pieces);
    from_parent(&platform_context.parent, &mut pieces);
    // Without the tools an order to delegate could not be followed.
    let children = if has_tools { platform_context.children.as_slice() } else { &[] };
    from_plugins(&plugins, children, &mut pieces);
    from_skills(&skills, &mut pieces);
    if has_tools && !platform_context.peers.is_empty() {
        let (heading, instruction) = (
            "## Your Peers (workspaces you can delegate to)",
            "Use the `mcp__molecule__delegate_task` tool to send tasks to peers. Only delegate to peers listed above.",
        );
        piece(&mut pieces, "platform: peers", [members(&platform_context.peers, heading, instruction)]);
        piece(&mut pieces, "built in: waiting", [RESULTS]);
        piece(&mut pieces, "built in: delegation", [FAILURES]);
    }
    let (seen, mut troubles) = reader.seen();
    let named = manifest.tools.iter().map(|tool| (crate::manifest::FILE, tool));
    let tools = skills.iter().flat_map(|skill| skill.tools.iter().map(|tool| (skill.source.as_str(), tool)));
    let tools = skills::tools(named.chain(tools), &mut troubles);
    let prompt = join(&mut pieces, &mut troubles);
    let workspace = Workspace {
        id: places.id.clone(),
        model: places.model.clone().or_else(|| manifest.model.clone()),
        system_prompt: (!prompt.is_empty()).then_some(prompt),
        tools: Value::Array(tools).to_string(),
    };
    Assembled {
        workspace: Arc::new(workspace),
        pieces,
        skills,
        manifest: manifest.clone(),
        troubles,
        plugins,
        seen,
        platform_context,
        has_tools,
    }
}

fn piece<T: AsRef<str>, const N: usize>(pieces: &mut Vec<Piece>, source: &str, lines: [T; N]) {
    let lines: Vec<&str> = lines.iter().map(AsRef::as_ref).collect();
    pieces.push(Piece { source: source.into(), text: lines.join("\n") });
}

fn prompt_files(folder: &Folder, manifest: &Manifest, reader: &mut Reader, pieces: &mut Vec<Piece>) {
    let default = [DEFAULT_FILE.to_owned()];
    let named =
        if manifest.prompt_files.is_empty() { default.as_slice() } else { manifest.prompt_files.as_slice() };
    let memory =
        MEMORY.iter().filter(|name| !named.iter().any(|named| named == *name)).map(|name| (false, *name));
    for (must, name) in
        named.iter().map(|name| (!manifest.prompt_files.is_empty(), name.as_str())).chain(memory)
    {
        let path = folder.path().join(name);
        let before = reader.troubles.len();
        match reader.text(folder, name, FILE_BYTES) {
            Some(text) if text.trim().is_empty() => {}
            Some(text) => piece(pieces, &path.to_string_lossy(), [text.trim()]),
            None if must && reader.troubles.len() == before => {
                reader.trouble(&path, "there is no such file; the prompt lacks it");
            }
            None => {}
        }
    }
}

fn from_parent(files: &[(String, String)], pieces: &mut Vec<Piece>) {
    for (index, (path, text)) in files.iter().enumerate() {
        let heading = "\n## Parent Context\n\nThe following context was shared by your parent workspace:\n\n";
        let heading = if index == 0 { heading } else { "" };
        let path = if path.is_empty() { "unknown" } else { path };
        piece(
            pieces,
            &format!("platform: shared context: {path}"),
            [&format!("{heading}### {path}"), text.as_str(), ""],
        );
    }
}

fn from_plugins(plugins: &[Plugin], children: &[Peer], pieces: &mut Vec<Piece>) {
    let all = |of: fn(&Plugin) -> &Vec<plugins::Text>| plugins.iter().flat_map(of);
    for (index, rule) in all(|plugin| &plugin.rules).enumerate() {
        let heading = if index == 0 { "\n## Platform Rules\n\n" } else { "" };
        piece(pieces, &rule.source, [&format!("{heading}{}", rule.text), ""]);
    }
    let fragments =
        all(|plugin| &plugin.fragments).map(|fragment| (fragment.source.clone(), fragment.text.clone()));
    let team = (!children.is_empty()).then(|| {
        let (heading, instruction) = (
            "## Your Team (sub-workspaces you coordinate)",
            "Use the `mcp__molecule__delegate_task` tool to send tasks to the chosen member. Only delegate to members listed above.",
        );
        ("platform: children".to_owned(), format!("{}\n\n{TEAM}", members(children, heading, instruction)))
    });
    for (index, (source, text)) in fragments.chain(team).enumerate() {
        let heading = if index == 0 { "\n## Platform Guidelines\n\n" } else { "" };
        piece(pieces, &source, [&format!("{heading}{text}"), ""]);
    }
}

fn from_skills(skills: &[Skill], pieces: &mut Vec<Piece>) {
    for (index, skill) in skills.iter().enumerate() {
        let heading = if index == 0 { "\n## Your Skills\n\n" } else { "" };
        let description =
            if skill.description.is_empty() { String::new() } else { format!("\n{}", skill.description) };
        let head = format!("{heading}### {}{description}", skill.name);
        piece(pieces, &skill.source, [&head, skill.instructions.as_str(), ""]);
    }
}

fn members(peers: &[Peer], heading: &str, instruction: &str) -> String {
    let mut text = format!("{heading}\n");
    for Peer { id, name, status, skills, .. } in peers {
        text.push_str(&format!("\n- **{name}** (id: `{id}`, status: {status})"));
        if !skills.is_empty() {
            text.push_str(&format!("\n  Skills: {}", skills.join(", ")));
        }
        text.push('\n');
    }
    text.push_str(&format!("\n{instruction}"));
    text
}

/// Joins the pieces. From the first piece that would make the prompt too long, all are left out.
fn join(pieces: &mut Vec<Piece>, troubles: &mut Vec<Trouble>) -> String {
    let mut length = 0;
    let fit = pieces.iter().take_while(|piece| {
        length += piece.text.len() + 1;
        length <= PROMPT_BYTES
    });
    let fit = fit.count();
    for dropped in pieces.drain(fit..) {
        let what = format!("the prompt would be longer than {PROMPT_BYTES} bytes; left out");
        troubles.push(Trouble::new(&dropped.source, what));
    }
    let texts: Vec<_> = pieces.iter().map(|piece| piece.text.as_str()).collect();
    texts.join("\n")
}

#[cfg(test)]
mod tests;
