//! Compile times of 200 annotated handlers compared with 200 bare ones.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use clap::Args;

use crate::{report, spread::Spread};

const HANDLERS: usize = 200;

/// The options of `compile`
#[derive(Args)]
pub(crate) struct Options {
    /// Three runs, without release builds
    #[arg(long)]
    quick: bool,
    /// Builds of each crate; 5 by default, or 3 if quick
    #[arg(long)]
    runs: Option<usize>,
}

/// Prints the table and writes it.
pub(crate) fn main(options: &Options) {
    let runs = options.runs.unwrap_or(if options.quick { 3 } else { 5 });
    let mut text = format!(
        "{HANDLERS} handlers with a JSON body, each in the form that the README shows; seconds to \
         build their crate once its dependencies are built.\n\n\
         | profile | annotated | bare | times |\n|---|---|---|---|\n"
    );
    for (profile, flags) in
        [("check", &["check"][..]), ("debug", &["build"]), ("release", &["build", "--release"])]
    {
        if profile == "release" && options.quick {
            continue;
        }
        let (annotated, bare) = handlers(flags, runs);
        let times =
            Spread::of(annotated.iter().zip(&bare).map(|(annotated, bare)| annotated / bare));
        let median = |times: &[f64]| Spread::of(times.iter().copied()).median;
        let line = format!(
            "| {profile} | {:.1} | {:.1} | **{times}** |\n",
            median(&annotated),
            median(&bare)
        );
        eprint!("{line}");
        text += &line;
    }
    println!("{text}");
    report::save("compile.md", &text);
}

fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn cargo(directory: &Path, words: &[&str], target: &Path) -> f64 {
    let started = Instant::now();
    let mut command = Command::new("cargo");
    command
        .args(words)
        .arg("--quiet")
        .current_dir(directory)
        .env("CARGO_TARGET_DIR", target)
        .env("CARGO_INCREMENTAL", "0");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    started.elapsed().as_secs_f64()
}

/// Builds the annotated handlers and the bare ones in turn. Returns the seconds of each build.
fn handlers(flags: &[&str], runs: usize) -> (Vec<f64>, Vec<f64>) {
    let root = workspace().canonicalize().unwrap().join("target/compile-time");
    let crates = [
        ("annotated", "#[idempotent(scope = \"scope::bearer_token\", ttl = \"24h\")]"),
        ("bare", ""),
    ]
    .map(|(name, attribute)| {
        let directory = root.join(name);
        write_crate(&directory, name, attribute);
        cargo(&directory, flags, &root.join("target"));
        directory
    });
    let build = |directory: &PathBuf| {
        let main = directory.join("src/main.rs");
        // A changed file forces a rebuild.
        let text = fs::read_to_string(&main).unwrap();
        fs::write(&main, format!("{text}\n")).unwrap();
        cargo(directory, flags, &root.join("target"))
    };
    (0..runs).map(|_| (build(&crates[0]), build(&crates[1]))).unzip()
}

fn write_crate(directory: &Path, name: &str, attribute: &str) {
    fs::create_dir_all(directory.join("src")).unwrap();
    let layer = workspace().canonicalize().unwrap().join("idempotent-actix");
    let manifest = format!(
        "[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
         [workspace]\n[dependencies]\n\
         actix-web = {{ version = \"4.18\", default-features = false, \
         features = [\"macros\"] }}\n\
         idempotent-actix = {{ path = {layer:?}, default-features = false, \
         features = [\"memory\"] }}\n\
         serde = {{ version = \"1\", features = [\"derive\"] }}\n"
    );
    fs::write(directory.join("Cargo.toml"), manifest).unwrap();
    // The same versions as the workspace.
    fs::copy(workspace().join("Cargo.lock"), directory.join("Cargo.lock")).unwrap();
    let mut text = "#![allow(unused_imports)]\n\
                    use actix_web::{App, HttpResponse, HttpServer, post, web};\n\
                    use idempotent_actix::{Idempotency, idempotent, scope, store::MemoryStore};\n\n\
                    #[derive(serde::Deserialize, serde::Serialize)]\n\
                    struct Order {\n    item: String,\n}\n\n"
        .to_owned();
    for number in 0..HANDLERS {
        let _ = write!(
            text,
            "{attribute}\n#[post(\"/orders/{number}\")]\n\
             async fn order_{number}(order: web::Json<Order>) -> HttpResponse {{\n    \
             HttpResponse::Created().json(order.into_inner())\n}}\n\n"
        );
    }
    let services: String =
        (0..HANDLERS).map(|number| format!("    app.service(order_{number});\n")).collect();
    let _ = write!(
        text,
        "fn routes(app: &mut web::ServiceConfig) {{\n{services}}}\n\n\
         #[actix_web::main]\nasync fn main() -> std::io::Result<()> {{\n    \
         let idempotency = Idempotency::new(MemoryStore::new());\n    \
         HttpServer::new(move || App::new().app_data(idempotency.clone())\n        \
         .configure(routes))\n        \
         .bind((\"127.0.0.1\", 0))?.run().await\n}}\n"
    );
    fs::write(directory.join("src/main.rs"), text).unwrap();
}
