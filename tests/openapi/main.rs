//! The OpenAPI document of a running payments server: for validators, for Schemathesis, and for
//! clients that are generated of it. `tests/openapi/install` has the tools.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, and so do its helpers"
)]

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
};

use tempfile::TempDir;

use crate::cutting_proxy::CuttingProxy;

mod cutting_proxy;

/// A payments server on the files of a directory of its own, which also has its document.
struct Payments {
    server: Child,
    address: String,
    directory: TempDir,
}

impl Payments {
    fn start() -> Self {
        let directory = TempDir::new().unwrap();
        let mut server = Command::new(env!("CARGO_BIN_EXE_page-server"))
            .args(["--listen", "127.0.0.1:0"])
            .current_dir(directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines().map_while(Result::ok);
        let line = lines.find(|line| line.contains("listening on http://")).unwrap();
        let address = line.split_once("http://").unwrap().1.split_whitespace().next().unwrap();
        let address = address.trim_end_matches(['/', ',']).to_owned();
        thread::spawn(move || lines.for_each(drop));
        Self { server, address, directory }
    }

    /// The file of the document.
    async fn document(&self) -> PathBuf {
        let url = format!("http://{}/openapi.json", self.address);
        let document = reqwest::get(url).await.unwrap().error_for_status().unwrap();
        let file = self.path("openapi.json");
        fs::write(&file, document.bytes().await.unwrap()).unwrap();
        file
    }

    /// A path in the directory.
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

impl Drop for Payments {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A file beside this one.
fn beside(name: &str) -> PathBuf {
    root().join("tests/openapi").join(name)
}

/// A command in the folder of the tools: one of these, or another program.
fn tool(name: &str) -> Command {
    let tools = root().join("target/openapi");
    let places = [tools.join("python/bin").join(name), tools.join("node_modules/.bin").join(name)];
    let found = places.into_iter().find(|place| place.exists());
    let mut command = Command::new(found.unwrap_or_else(|| name.into()));
    command.current_dir(tools);
    command
}

/// The output of a command that succeeds.
fn run(command: &mut Command) -> String {
    let (succeeded, output) = try_to_run(command);
    assert!(succeeded, "{command:?}:\n{output}");
    output
}

fn try_to_run(command: &mut Command) -> (bool, String) {
    let ended = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let errors = text(&ended.stderr);
    (
        ended.status.success(),
        if errors.is_empty() {
            text(&ended.stdout)
        } else {
            format!("{}{errors}", text(&ended.stdout))
        },
    )
}

#[tokio::test]
async fn four_validators_accept_the_documents() {
    let payments = Payments::start();
    let golden = |version| root().join("idempotent-http/golden/openapi").join(version);
    let documents =
        [payments.document().await, golden("3.0.described.json"), golden("3.1.described.json")];
    for document in &documents {
        run(tool("openapi-spec-validator").arg(document));
    }
    run(tool("redocly").arg("lint").args(&documents));
    run(tool("spectral").args(["lint", "--ruleset"]).arg(beside("spectral.yaml")).args(&documents));
    run(tool("node").arg(beside("swagger_parser.mjs")).args(&documents));
}

#[tokio::test]
async fn validators_notice_a_reference_that_names_nothing() {
    let payments = Payments::start();
    let document = payments.document().await;
    let text = fs::read_to_string(&document).unwrap();
    let broken = text.replacen("#/components/parameters/IdempotencyKey", "#/components/x", 1);
    assert_ne!(broken, text);
    fs::write(&document, broken).unwrap();
    for command in [
        tool("openapi-spec-validator").arg(&document),
        tool("redocly").arg("lint").arg(&document),
        tool("spectral").args(["lint", "--ruleset"]).arg(beside("spectral.yaml")).arg(&document),
        tool("node").arg(beside("swagger_parser.mjs")).arg(&document),
    ] {
        let (accepted, output) = try_to_run(command);
        assert!(!accepted, "{command:?}:\n{output}");
    }
}

/// Calls a fresh server with random data.
fn schemathesis(payments: &Payments) -> Command {
    let modules = [root().join("contrib/openapi"), root().join("tests/openapi")];
    let mut command = tool("schemathesis");
    command
        .current_dir(payments.directory.path())
        .env("PYTHONPATH", std::env::join_paths(modules).unwrap())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("SCHEMATHESIS_HOOKS", "checks")
        .args(["run", &format!("http://{}/openapi.json", payments.address)])
        .args(["-H", "Authorization: Bearer sk_test_alice", "--generation-database", "none"])
        .args(["--seed", "1", "--max-examples", "30", "--no-color", "--checks"])
        .arg(
            "not_a_server_error,status_code_conformance,content_type_conformance,\
             response_headers_conformance,response_schema_conformance,valid_keys_are_accepted",
        );
    command
}

#[test]
fn schemathesis_finds_no_response_that_the_document_lacks() {
    run(&mut schemathesis(&Payments::start()));
}

#[test]
fn schemathesis_uses_keys_twice_without_the_hook() {
    let (succeeded, output) = try_to_run(schemathesis(&Payments::start()).env("WITHOUT_HOOK", "1"));
    assert!(!succeeded && output.contains("valid_keys_are_accepted"), "{output}");
}

/// A generated client in its language.
struct Client {
    /// The header of the key as this client writes it is compared without case.
    key: &'static str,
    command: Command,
}

/// Pays with a client whose first response is lost, and checks that its retry got a replay.
fn pay_once(payments: &Payments, client: Client) {
    let Client { key, mut command } = client;
    let proxy = CuttingProxy::start(&payments.address);
    let output = run(command.args([&format!("http://{}", proxy.address), key]));
    let lines: Vec<_> = output.lines().collect();
    let [cut, paid] = &*lines else { panic!("{key}: {output}") };
    let id = paid.strip_prefix("200 ").and_then(|paid| paid.strip_suffix(" true"));
    assert!(*cut == "cut" && id.is_some_and(|id| id.starts_with("pi_")), "{key}: {output}");
    let sent = proxy.keys();
    assert_eq!(sent, [key, key], "{output}");
}

#[tokio::test]
async fn a_python_client_that_is_cut_off_pays_once() {
    let payments = Payments::start();
    let (document, client) = (payments.document().await, payments.path("python"));
    let mut generate = tool("openapi-python-client");
    run(generate.args(["generate", "--path"]).arg(document).arg("--output-path").arg(&client));
    let mut command = tool("python");
    command.env("PYTHONPATH", client).arg(beside("client.py"));
    pay_once(&payments, Client { key: "python-1", command });
}

#[tokio::test]
async fn a_typescript_client_that_is_cut_off_pays_once() {
    let payments = Payments::start();
    let (document, client) = (payments.document().await, payments.path("typescript"));
    fs::create_dir(&client).unwrap();
    fs::copy(beside("client.ts"), client.join("client.ts")).unwrap();
    let mut generate = tool("openapi-ts");
    generate.args(["-c", "@hey-api/client-fetch", "-i"]).arg(document);
    run(generate.arg("-o").arg(client.join("generated")));
    let mut compile = tool("tsc");
    compile.args(["--strict", "--target", "es2022", "--lib", "es2022,dom,dom.iterable"]);
    compile.args(["--module", "commonjs", "--moduleResolution", "node", "--skipLibCheck"]);
    run(compile.arg("--outDir").arg(client.join("built")).arg(client.join("client.ts")));
    let mut command = tool("node");
    command.arg(client.join("built/client.js"));
    pay_once(&payments, Client { key: "typescript-1", command });
}

#[tokio::test]
async fn a_ruby_client_that_is_cut_off_pays_once() {
    let payments = Payments::start();
    let (document, client) = (payments.document().await, payments.path("ruby"));
    let mut generate = tool("openapi-generator-cli");
    generate.args(["generate", "-g", "ruby", "--additional-properties=gemName=payments_client"]);
    run(generate.arg("-i").arg(document).arg("-o").arg(&client));
    let mut command = tool("ruby");
    command.arg("-I").arg(client.join("lib")).arg(beside("client.rb"));
    pay_once(&payments, Client { key: "ruby-1", command });
}
