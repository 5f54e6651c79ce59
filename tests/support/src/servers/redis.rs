//! Private Redis servers on free ports. They end with the process of the test, even if that is
//! killed: a separate watchdog process reads from a pipe that only the process of the test holds
//! open.

use std::{
    env, fs,
    net::{Ipv4Addr, TcpListener},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use redis::{Client, ConnectionLike, FromRedisValue, cluster::ClusterClient};

pub use self::writes::{Replica, Written};

mod writes;

/// A `redis-server` or Sentinel in a temporary directory.
pub struct Server {
    /// The port on this machine.
    pub port: u16,
    /// The server process and its watchdog.
    running: Option<[Child; 2]>,
    program: PathBuf,
    directory: PathBuf,
    args: Vec<String>,
}

/// Writes every command to disk before it responds.
pub const DURABLE: &[&str] = &["--save", "", "--appendonly", "yes", "--appendfsync", "always"];
/// Writes nothing to disk.
pub const IN_MEMORY: &[&str] = &["--save", "", "--appendonly", "no"];

impl Server {
    /// Starts an empty server with these arguments, such as [`DURABLE`].
    pub fn start(args: &[&str]) -> Self {
        Self::start_program("redis-server".into(), args)
    }

    /// Starts an empty server of another release, if two are installed: the last `redis-server` in
    /// `PATH`. The tests on Valkey put theirs before the machine's own.
    pub fn start_last_in_path(args: &[&str]) -> Self {
        let path = env::var_os("PATH").unwrap_or_default();
        let programs = env::split_paths(&path).map(|directory| directory.join("redis-server"));
        let last = programs.filter(|program| program.is_file()).last();
        Self::start_program(last.unwrap_or_else(|| "redis-server".into()), args)
    }

    fn start_program(program: PathBuf, args: &[&str]) -> Self {
        let port = free_port();
        let directory =
            env::temp_dir().join(format!("idempotent-redis-{}-{port}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        let mut server = Self { port, running: None, program, directory, args };
        server.run();
        server
    }

    /// A replica of this server.
    pub fn replica(&self, args: &[&str]) -> Self {
        let of =
            ["--replicaof", "127.0.0.1", &self.port.to_string(), "--repl-diskless-sync-delay", "0"];
        let replica = Self::start(&[args, of.as_slice()].concat());
        wait_until("the replica is in sync", || {
            replica.info("master_link_status").as_deref() == Some("up")
        });
        replica
    }

    /// A Sentinel that watches a master under the name `payments`.
    pub fn sentinel(master: &Self, quorum: usize) -> Self {
        let port = free_port();
        let directory =
            env::temp_dir().join(format!("idempotent-redis-{}-{port}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let config = directory.join("sentinel.conf");
        let watched = master.port;
        let lines = format!(
            "sentinel monitor payments 127.0.0.1 {watched} {quorum}\nsentinel \
             down-after-milliseconds payments 500\n\
             sentinel failover-timeout payments 3000\n"
        );
        fs::write(&config, lines).unwrap();
        let args = vec![config.display().to_string(), "--sentinel".to_owned()];
        let program = "redis-server".into();
        let mut server = Self { port, running: None, program, directory, args };
        server.run();
        server
    }

    fn run(&mut self) {
        let mut command = Command::new(&self.program);
        // The configuration file, if there is one, is the first argument.
        let (file, rest): (Vec<_>, Vec<_>) =
            self.args.iter().partition(|arg| arg.ends_with(".conf"));
        command.args(file).args([
            "--port",
            &self.port.to_string(),
            "--bind",
            "127.0.0.1",
            "--loglevel",
            "warning",
        ]);
        command
            .arg("--dir")
            .arg(&self.directory)
            .args(rest)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let server = command
            .spawn()
            .expect("`redis-server` 7.0 or later is needed: apt-get install -y redis-server");
        let mut watchdog = Command::new("sh");
        watchdog.args(["-c", r#"read -r _; kill -9 "$1""#, "watchdog", &server.id().to_string()]);
        // In a separate process group, so that Ctrl-C does not end it before the test.
        std::os::unix::process::CommandExt::process_group(&mut watchdog, 0);
        let watchdog = watchdog
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.running = Some([server, watchdog]);
        wait_until("the server responds", || {
            self.client().get_connection().is_ok_and(|mut connection| connection.check_connection())
        });
    }

    /// Kills the server (`SIGKILL`).
    pub fn kill(&mut self) {
        if let Some([mut server, mut watchdog]) = self.running.take() {
            // The watchdog first: another process may get the server's process id once the server
            // has ended.
            watchdog.kill().unwrap();
            watchdog.wait().unwrap();
            server.kill().unwrap();
            server.wait().unwrap();
        }
    }

    /// Suspends the process (`SIGSTOP`): the kernel still accepts connections, but nothing
    /// responds on them.
    pub fn pause(&self) {
        self.signal("-STOP");
    }

    /// Resumes a suspended process (`SIGCONT`).
    pub fn resume(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let [server, _] = self.running.as_ref().unwrap();
        assert!(
            Command::new("kill")
                .args([signal, &server.id().to_string()])
                .status()
                .unwrap()
                .success()
        );
    }

    /// Kills the server and starts it again with the same port and files.
    pub fn restart(&mut self) {
        self.kill();
        self.run();
    }

    /// The URL that a store connects to.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// A client of the server.
    pub fn client(&self) -> Client {
        Client::open(self.url()).unwrap()
    }

    /// Sends a command, whose words are separated by spaces.
    pub fn command<T: FromRedisValue>(&self, text: &str) -> T {
        command(&mut self.client().get_connection().unwrap(), text)
    }

    /// The value of a field of `INFO`, if the server responds and has this field.
    pub fn info(&self, field: &str) -> Option<String> {
        let mut connection = self.client().get_connection().ok()?;
        let info: String = command(&mut connection, "INFO everything");
        let line = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.map(|value| value.trim_end().to_owned())
    }

    /// How often a command was called since `CONFIG RESETSTAT`.
    pub fn calls(&self, command: &str) -> u64 {
        let calls = self.info(&format!("cmdstat_{command}")).and_then(|stat| {
            let calls = stat.split(',').find_map(|pair| pair.strip_prefix("calls="))?;
            calls.parse().ok()
        });
        calls.unwrap_or(0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// A Redis Cluster of three masters.
pub struct Cluster(
    /// The three masters, followed by their replicas, if there are any.
    pub Vec<Server>,
);

impl Cluster {
    /// Starts three masters without replicas, and waits until they cover all slots.
    pub fn start() -> Self {
        Self::of(3, 0, "2000")
    }

    /// Starts three masters with one replica each, and waits until the replicas are in sync.
    pub fn replicated() -> Self {
        let cluster = Self::of(6, 1, "4000");
        wait_until("every replica is in sync", || {
            cluster
                .0
                .iter()
                .filter(|node| node.info("master_link_status").as_deref() == Some("up"))
                .count()
                == 3
        });
        let (replicas, masters): (Vec<_>, Vec<_>) =
            cluster.0.into_iter().partition(|node| node.info("role").as_deref() == Some("slave"));
        Self(masters.into_iter().chain(replicas).collect())
    }

    fn of(nodes: usize, replicas: usize, timeout: &str) -> Self {
        let timeout = ["--cluster-node-timeout", timeout, "--cluster-require-full-coverage", "no"];
        let args =
            [DURABLE, &["--cluster-enabled", "yes", "--repl-diskless-sync-delay", "0"], &timeout]
                .concat();
        let nodes: Vec<_> = (0..nodes).map(|_| Server::start(&args)).collect();
        let mut create = Command::new("redis-cli");
        create
            .args(["--cluster", "create"])
            .args(nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)));
        create.args(["--cluster-replicas", &replicas.to_string()]);
        let created = create.args(["--cluster-yes"]).output();
        let created = created.expect("`redis-cli` is needed: apt-get install -y redis-server");
        assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stdout));
        let cluster = Self(nodes);
        wait_until("the cluster covers all slots", || {
            cluster
                .0
                .iter()
                .all(|node| node.command::<String>("CLUSTER INFO").contains("cluster_state:ok"))
        });
        cluster
    }

    /// The URL that a store connects to.
    pub fn url(&self) -> String {
        let nodes: Vec<_> = self.0.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
        format!("redis+cluster://{}", nodes.join(","))
    }

    /// A client of the cluster.
    pub fn client(&self) -> ClusterClient {
        ClusterClient::new(self.0.iter().map(Server::url).collect::<Vec<_>>()).unwrap()
    }
}

/// Sends a command, whose words are separated by spaces.
pub fn command<T: FromRedisValue>(connection: &mut dyn ConnectionLike, command: &str) -> T {
    let mut words = command.split(' ');
    let mut command = redis::cmd(words.next().unwrap());
    words.for_each(|word| {
        command.arg(word);
    });
    command.query(connection).unwrap()
}

/// Waits until a condition holds, at most 20 seconds.
pub fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(20), "{what}: not within 20 seconds");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A free port whose cluster bus port (10,000 higher) is free, too. Both are below the range of
/// ephemeral ports.
fn free_port() -> u16 {
    loop {
        let port = fastrand::u16(10_000..20_000);
        let free = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
        if free(port) && free(port + 10_000) {
            return port;
        }
    }
}
