//! A gateway that runs as another user and lays traps in its home for root. Without root there is nothing to trap.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use talaria_fakes::soon;
use talaria_hermes::gateway::{Config, Home, Plugin, Supervisor, User};
use talaria_turns::Workspace;
use tempfile::TempDir;

use crate::gateway::{NOBODY, config, id_of};

/// What root alone may read.
const PRECIOUS: &str = "API_SERVER_KEY=precious-key-of-root\n";

/// Every file that the host reads or writes in a home.
const FILES: [&str; 8] = [
    ".env",
    "config.yaml",
    "config.yaml.before-talaria",
    "SOUL.md",
    "SOUL.md.before-talaria",
    ".clean_shutdown",
    ".talaria-gateway",
    "gateway.log",
];

/// A folder of the gateway's user, and a file and a folder of root's beside it.
struct Ground {
    root: TempDir,
    uid: u32,
    gid: u32,
}

impl Ground {
    /// `None` if this process is not root.
    fn new() -> Option<Self> {
        let root = tempfile::tempdir().unwrap();
        if root.path().metadata().unwrap().uid() != 0 {
            return None;
        }
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let ground = Self { root, uid: id_of("-u"), gid: id_of("-g") };
        fs::create_dir(ground.path("agent")).unwrap();
        ground.give("agent");
        fs::create_dir(ground.path("roots")).unwrap();
        fs::write(ground.precious(), PRECIOUS).unwrap();
        fs::set_permissions(ground.precious(), fs::Permissions::from_mode(0o600)).unwrap();
        Some(ground)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn precious(&self) -> PathBuf {
        self.path("roots/precious")
    }

    fn give(&self, name: &str) {
        chown(self.path(name), Some(self.uid), Some(self.gid)).unwrap();
    }

    /// A home that the user made.
    fn home(&self) -> PathBuf {
        fs::create_dir(self.path("agent/.hermes")).unwrap();
        self.give("agent/.hermes");
        self.path("agent/.hermes")
    }

    /// Starts a gateway that ends at once, with everything that the host writes into a home.
    async fn start(&self, config: &Config) -> bool {
        let workspace =
            Arc::new(Workspace { system_prompt: Some("You are one.".into()), ..Workspace::default() });
        let mut supervisor =
            Supervisor::new(config.clone(), Some(Arc::new(move || Arc::clone(&workspace))), |_| ());
        soon("the gateway is started, or not", supervisor.up()).await
    }

    /// How a gateway with this home is started.
    fn config(&self, home: &Path) -> Config {
        let scripts = self.path("scripts");
        fs::create_dir_all(&scripts).unwrap();
        let mut config = config(&scripts, Duration::from_secs(60));
        config.launch.command = vec!["true".into()];
        config.launch.home = home.to_owned();
        config.launch.log = home.join("gateway.log");
        config.launch.user = Some(User::named(NOBODY).unwrap());
        config.settings.plugin = Some(Plugin {
            host: "127.0.0.1".into(),
            port: 8645,
            callback_url: "http://127.0.0.1:1/".into(),
            secret: None,
        });
        config
    }

    /// Checks that root's file and folder are as they were, and that the user has no copy of the file.
    fn assert_untouched(&self, what: &str) {
        let (folder, file) = (self.path("roots").metadata().unwrap(), self.precious().metadata().unwrap());
        assert_eq!((folder.uid(), folder.mode() & 0o7777), (0, 0o755), "{what}: the folder of root");
        assert_eq!((file.uid(), file.mode() & 0o7777), (0, 0o600), "{what}: the file of root");
        assert_eq!(fs::read_to_string(self.precious()).unwrap(), PRECIOUS, "{what}");
        let names: BTreeSet<_> =
            fs::read_dir(self.path("roots")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, BTreeSet::from(["precious".into()]), "{what}: nothing was created there");
        let grep =
            Command::new("grep").args(["-rl", "precious-key"]).arg(self.path("agent")).output().unwrap();
        let copies = String::from_utf8(grep.stdout).unwrap();
        let copies: Vec<_> =
            copies.lines().filter(|path| Path::new(path).metadata().unwrap().uid() != 0).collect();
        assert_eq!(copies, Vec::<&str>::new(), "{what}: the user has a copy");
    }
}

#[tokio::test]
async fn root_gives_no_folder_away_through_a_link_to_it() {
    let Some(ground) = Ground::new() else { return };
    symlink(ground.path("roots"), ground.path("agent/.hermes")).unwrap();
    symlink(ground.path("roots"), ground.path("agent/sub")).unwrap();
    for home in ["agent/.hermes", "agent/.hermes/", "agent/.hermes/.", "agent/sub/.hermes", "agent/sub/a/b"] {
        // `join` would drop a slash at the end.
        let home = PathBuf::from(format!("{}/{home}", ground.root.path().display()));
        assert!(!ground.start(&ground.config(&home)).await, "{}", home.display());
        ground.assert_untouched(&home.display().to_string());
    }
}

#[tokio::test]
async fn a_folder_that_the_user_may_have_moved_into_place_is_not_given_away() {
    let Some(ground) = Ground::new() else { return };
    let home = ground.path("agent/.hermes");
    fs::create_dir(&home).unwrap();
    fs::write(home.join("of-root"), "").unwrap();
    ground.start(&ground.config(&home)).await;
    assert_eq!(home.metadata().unwrap().uid(), 0, "it is not empty");
    fs::remove_file(home.join("of-root")).unwrap();
    ground.start(&ground.config(&home)).await;
    assert_eq!(home.metadata().unwrap().uid(), ground.uid, "there is nothing in it");
    let made = ground.path("roots/made/home");
    ground.start(&ground.config(&made)).await;
    assert_eq!(made.metadata().unwrap().uid(), ground.uid, "only root can make it");
    assert_eq!(made.parent().unwrap().metadata().unwrap().uid(), 0);
    assert_eq!(made.join(".env").metadata().unwrap().uid(), ground.uid);
}

#[tokio::test]
async fn root_follows_no_link_in_the_place_of_a_file() {
    let Some(ground) = Ground::new() else { return };
    let home = ground.home();
    for name in FILES {
        symlink(ground.precious(), home.join(name)).unwrap();
        ground.start(&ground.config(&home)).await;
        ground.assert_untouched(name);
        assert_eq!(Home::found(&home).key().is_some(), name != ".env", "{name}: the key of root is not ours");
        fs::remove_dir_all(&home).unwrap();
        ground.home();
    }
}

#[tokio::test]
async fn root_takes_no_hard_link_for_a_file_of_the_user() {
    let Some(ground) = Ground::new() else { return };
    let home = ground.home();
    for name in FILES {
        fs::hard_link(ground.precious(), home.join(name)).unwrap();
        ground.start(&ground.config(&home)).await;
        ground.assert_untouched(name);
        fs::remove_dir_all(&home).unwrap();
        ground.home();
    }
}

#[tokio::test]
async fn a_pipe_in_the_place_of_a_file_stops_nothing() {
    let Some(ground) = Ground::new() else { return };
    let home = ground.home();
    for name in FILES {
        let pipe = home.join(name);
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        ground.give(&format!("agent/.hermes/{name}"));
        ground.start(&ground.config(&home)).await;
        let found = Home::new(&home, Some(&User::named(NOBODY).unwrap()));
        assert_eq!(found.key().is_some(), name != ".env", "{name}: reading ends");
        fs::remove_dir_all(&home).unwrap();
        ground.home();
    }
}

#[tokio::test]
async fn an_endless_file_is_not_read_to_its_end() {
    let Some(ground) = Ground::new() else { return };
    let home = ground.home();
    for name in FILES {
        // A hole of a tebibyte takes no room on the disk.
        File::create(home.join(name)).unwrap().set_len(1 << 40).unwrap();
        ground.give(&format!("agent/.hermes/{name}"));
    }
    ground.start(&ground.config(&home)).await;
    assert_eq!(home.join(".env").metadata().unwrap().len(), 1 << 40, "left alone");
    assert!(home.join("gateway.log").metadata().unwrap().len() < 1 << 20, "a long log is started anew");
    assert_eq!(home.join("gateway.log.1").metadata().unwrap().len(), 1 << 40);
}

#[tokio::test]
async fn a_log_elsewhere_is_opened_by_root_only_where_nobody_else_can_lay_a_link() {
    let Some(ground) = Ground::new() else { return };
    let mut config = ground.config(&ground.home());
    fs::create_dir(ground.path("logs")).unwrap();
    config.launch.command = vec!["echo".into(), "hello".into()];
    config.launch.log = ground.path("logs/gateway.log");
    ground.start(&config).await;
    assert_eq!(fs::read_to_string(&config.launch.log).unwrap(), "hello\n");
    assert_eq!(config.launch.log.metadata().unwrap().uid(), 0);

    fs::create_dir(ground.path("agent/logs")).unwrap();
    symlink(ground.precious(), ground.path("agent/logs/gateway.log")).unwrap();
    symlink(ground.path("roots"), ground.path("agent/moved")).unwrap();
    for log in ["agent/logs/gateway.log", "agent/moved/gateway.log", "agent/moved/precious"] {
        config.launch.log = ground.path(log);
        assert!(!ground.start(&config).await, "{log}");
        ground.assert_untouched(log);
    }
}
