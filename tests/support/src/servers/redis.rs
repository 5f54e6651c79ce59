//! Private Redis servers on free ports, which end with the test's process however that ends: an
//! external watchdog waits for the end of a pipe that only the process holds open.

use std::{
    env, fs,
    net::{Ipv4Addr, TcpListener},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use redis::{Client, ConnectionLike, FromRedisValue, cluster::ClusterClient};

/// A `redis-server` in a separate directory, or one that Sentinels run in.
pub struct Server {
    /// The port on this machine.
    pub port: u16,
    /// The server, and its watchdog.
    running: Option<[Child; 2]>,
    directory: PathBuf,
    args: Vec<String>,
}

/// As durable as possible.
pub const DURABLE: &[&str] = &["--save", "", "--appendonly", "yes", "--appendfsync", "always"];
/// Keeps nothing on disk.
pub const FORGETFUL: &[&str] = &["--save", "", "--appendonly", "no"];

impl Server {
    /// Starts an empty server with these arguments, such as [`DURABLE`].
    pub fn start(args: &[&str]) -> Self {
        let port = free_port();
        let directory =
            env::temp_dir().join(format!("idempotent-redis-{}-{port}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        let mut server = Self { port, running: None, directory, args };
        server.run();
        server
    }

    /// A server that follows this one.
    pub fn replica(&self, args: &[&str]) -> Self {
        let of =
            ["--replicaof", "127.0.0.1", &self.port.to_string(), "--repl-diskless-sync-delay", "0"];
        let replica = Self::start(&[args, of.as_slice()].concat());
        within("the replica is in step", || {
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
        let mut server = Self { port, running: None, directory, args };
        server.run();
        server
    }

    fn run(&mut self) {
        let mut command = Command::new("redis-server");
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
        within("the server responses", || {
            self.client().get_connection().is_ok_and(|mut connection| connection.check_connection())
        });
    }

    /// `kill -9`, and nothing after it.
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

    /// Stops the process without ending it (`SIGSTOP`): the kernel still accepts connections, and
    /// nothing responds on them.
    pub fn pause(&self) {
        self.signal("-STOP");
    }

    /// Lets a stopped process continue (`SIGCONT`).
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

    /// Starts it again, on the same port and files.
    pub fn restart(&mut self) {
        self.kill();
        self.run();
    }

    /// The URL that a store connects to.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// A client that is separate from the store's connections.
    pub fn client(&self) -> Client {
        Client::open(self.url()).unwrap()
    }

    /// Sends a command, written with spaces between its words.
    pub fn ask<T: FromRedisValue>(&self, command: &str) -> T {
        ask(&mut self.client().get_connection().unwrap(), command)
    }

    /// The value of a field of `INFO`, if the server responds and has it.
    pub fn info(&self, field: &str) -> Option<String> {
        let mut connection = self.client().get_connection().ok()?;
        let info: String = ask(&mut connection, "INFO everything");
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

/// Three masters that share the slots.
pub struct Cluster(
    /// The masters, and after them the replicas if there are any.
    pub Vec<Server>,
);

impl Cluster {
    /// Starts three servers and waits until they are a cluster.
    pub fn start() -> Self {
        Self::of(3, 0, "2000")
    }

    /// Starts three masters with a replica each, which serve the available slots while others are
    /// missing.
    pub fn replicated() -> Self {
        let cluster = Self::of(6, 1, "4000");
        within("every replica is in step", || {
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
        within("the cluster is whole", || {
            cluster
                .0
                .iter()
                .all(|node| node.ask::<String>("CLUSTER INFO").contains("cluster_state:ok"))
        });
        cluster
    }

    /// The URL that a store connects to.
    pub fn url(&self) -> String {
        let nodes: Vec<_> = self.0.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
        format!("redis+cluster://{}", nodes.join(","))
    }

    /// A client that is separate from the store's connections.
    pub fn client(&self) -> ClusterClient {
        ClusterClient::new(self.0.iter().map(Server::url).collect::<Vec<_>>()).unwrap()
    }
}

/// Sends a command, written with spaces between its words.
pub fn ask<T: FromRedisValue>(connection: &mut dyn ConnectionLike, command: &str) -> T {
    let mut words = command.split(' ');
    let mut command = redis::cmd(words.next().unwrap());
    words.for_each(|word| {
        command.arg(word);
    });
    command.query(connection).unwrap()
}

/// Waits until a condition holds.
pub fn within(what: &str, holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(20), "{what}: not within 20 seconds");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A port that is free, and whose neighbor for the cluster's bus is free; below those that outgoing
/// connections take.
fn free_port() -> u16 {
    loop {
        let port = fastrand::u16(10_000..20_000);
        let free = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
        if free(port) && free(port + 10_000) {
            return port;
        }
    }
}
