//! Encrypted connections.

use std::{
    env, fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
};

use bytes::Bytes;
use idempotent_core::{
    protocol::{ClaimOutcome, Rejection},
    store::Store,
};
use idempotent_redis::RedisStore;

use super::helpers::{complete, request};
use test_support::servers::redis::{IN_MEMORY, Server};

/// In the environment of a process that uses the store.
const URL: &str = "TEST_REDIS_TLS_URL";
const CA: &str = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
                  -subj /CN=ca -keyout NAME.key -out NAME.pem";
const REQUEST: &str = "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \
                       -subj /CN=server -keyout server.key -out server.csr";
const CERTIFICATE: &str = "x509 -req -days 2 -in server.csr -CA ca.pem -CAkey ca.key \
                           -CAcreateserial -extfile names -out server.pem";

/// A directory that is removed with this.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Creates the certificate of a server on this machine, and of another authority.
fn create_certificates() -> Directory {
    let name = format!("idempotent-redis-tls-{}", std::process::id());
    let directory = Directory(env::temp_dir().join(name));
    fs::create_dir_all(&directory.0).unwrap();
    fs::write(directory.0.join("names"), "subjectAltName=IP:127.0.0.1\n").unwrap();
    for command in [&CA.replace("NAME", "ca"), &CA.replace("NAME", "other"), REQUEST, CERTIFICATE] {
        let mut openssl = Command::new("openssl");
        let created = openssl.args(command.split(' ').filter(|word| !word.is_empty()));
        let created = created.current_dir(&directory.0).output().expect("`openssl` is needed");
        assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
    }
    directory
}

/// Runs this test in a process that trusts this authority. Returns whether it passed.
fn passes_if_trusted(authority: &Path, url: &str) -> bool {
    let mut process = Command::new(env::current_exe().unwrap());
    process.args(["--exact", "tls::a_server_is_trusted_by_its_certificate"]);
    process.env(URL, url).env("SSL_CERT_FILE", authority).env_remove("SSL_CERT_DIR");
    process.output().unwrap().status.success()
}

/// Fails if the store trusts any certificate, or cannot use a server with a right one.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_trusted_by_its_certificate() {
    if let Ok(url) = env::var(URL) {
        let store = RedisStore::connect(&url).await.unwrap();
        let recording = Bytes::from(vec![7; 1024 * 1024]);
        let id = complete(&store, &recording).await.unwrap();
        let replay = store.claim(&id, &request()).await.unwrap();
        assert!(replay == ClaimOutcome::Rejected(Rejection::Completed(recording)), "not a replay");
        return;
    }
    let directory = create_certificates();
    let file = |name| directory.0.join(name);
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let port = port.to_string();
    let [certificate, key, authority] =
        ["server.pem", "server.key", "ca.pem"].map(|name| file(name).display().to_string());
    let tls = [
        ["--tls-port", &port],
        ["--tls-cert-file", &certificate],
        ["--tls-key-file", &key],
        ["--tls-ca-cert-file", &authority],
        ["--tls-auth-clients", "no"],
    ];
    // Valkey as the tests compile it has no TLS.
    let _server = Server::start_last_in_path(&[IN_MEMORY, tls.as_flattened()].concat());
    let url = format!("rediss://127.0.0.1:{port}/");
    assert!(passes_if_trusted(&file("ca.pem"), &url));
    assert!(!passes_if_trusted(&file("other.pem"), &url));
}
