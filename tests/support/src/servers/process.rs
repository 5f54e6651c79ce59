//! The processes of private servers, and what they need of the machine.

use std::{
    env, fs, iter,
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

/// A name for a database or a table that no other has.
pub fn unique_name() -> String {
    format!("t{:016x}", fastrand::u64(..))
}

/// A free port below the range of ephemeral ports. Between this check and the server's start
/// another process may take the port; then the start fails.
pub fn free_port() -> u16 {
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    iter::repeat_with(|| fastrand::u16(30_000..32_700)).find(is_free).unwrap()
}

/// A temporary directory that this user owns if this process runs as root.
pub fn directory_of(user: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = env::temp_dir().join(format!("idempotent-{user}-{}-{number}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    if is_root() {
        run(Command::new("chown").arg(user).arg(&path));
    }
    path
}

pub fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().unwrap();
    id.stdout.trim_ascii() == b"0"
}

/// A command that runs as this user if this process runs as root.
pub fn as_user(user: &str, program: impl AsRef<Path>) -> Command {
    if !is_root() {
        return Command::new(program.as_ref());
    }
    let mut command = Command::new("runuser");
    command.args(["-u", user, "--"]).arg(program.as_ref());
    command
}

/// Runs a command to its end, and panics with its output if it fails.
pub fn run(command: &mut Command) {
    let output = command.stdin(Stdio::null()).current_dir("/").output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?}: {errors}{}",
        String::from_utf8_lossy(&output.stdout)
    );
}

/// The process that ends a server when this is dropped.
#[derive(Debug)]
pub struct Watchdog(Child);

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Runs a script when this process ends or the returned value is dropped: both close the pipe that
/// the watchdog reads.
pub fn watchdog(script: &str, arguments: &[&Path]) -> Watchdog {
    let script = format!("read -r _; {script}");
    let mut command = Command::new("sh");
    command.args(["-c", &script, "watchdog"]).args(arguments).stdin(Stdio::piped());
    // In a separate process group, so that Ctrl-C does not end it before the test.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    Watchdog(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}
