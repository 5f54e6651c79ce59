#!/usr/bin/env python3
"""What a project compiles: actix-web alone, and with `idempotent-actix` and one store.

    benches/first_build.py [STORE…]

Each project is built from nothing, in debug mode, with the lock file of the workspace. A row has the
number of its crates, and the seconds of processor time of its build: they depend less on what else
the machine does than the seconds of a clock, which on two idle cores are a little more than half of
them. Without stores it writes `results/first_build.md`.
"""

import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile

BENCHES = pathlib.Path(__file__).resolve().parent
WORKSPACE = BENCHES.parent
STORES = ["memory", "sqlite", "postgres", "mysql", "redis", "dynamodb"]
MAIN = """
use actix_web::{App, HttpResponse, HttpServer, post};

%s#[post("/orders")]
async fn order() -> HttpResponse {
    HttpResponse::Created().finish()
}

#[actix_web::main]
async fn main() -> std::io::Result<()> {
    HttpServer::new(|| App::new().service(order)).bind(("127.0.0.1", 0))?.run().await
}
"""
ATTRIBUTE = '#[idempotent_actix::idempotent(scope = "idempotent_actix::scope::bearer_token")]\n'


def cargo(directory, *words, **options):
    command = ["cargo", *words]
    return subprocess.run(command, cwd=directory, check=True, text=True, **options)


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(store, directory):
    """The number of crates, and the seconds of their build."""
    manifest = '[package]\nname = "project"\nedition = "2024"\n[workspace]\n[dependencies]\n'
    manifest += 'actix-web = { version = "4.18", default-features = false, features = ["macros"] }\n'
    if store:
        layer = WORKSPACE / "idempotent-actix"
        manifest += f'idempotent-actix = {{ path = "{layer}", default-features = false, '
        manifest += f'features = ["{store}"] }}\n'
    (directory / "src").mkdir()
    (directory / "Cargo.toml").write_text(manifest)
    (directory / "src/main.rs").write_text(MAIN % (ATTRIBUTE if store else ""))
    shutil.copy(WORKSPACE / "Cargo.lock", directory)
    words = ["tree", "--edges", "normal,build", "--prefix", "none", "--format", "{p}"]
    crates = cargo(directory, *words, stdout=subprocess.PIPE).stdout.splitlines()
    crates = {crate.removesuffix(" (*)") for crate in crates} - {""}
    before = processor_seconds()
    cargo(directory, "build", "--quiet", "--target-dir", directory / "target")
    return len(crates) - 1, processor_seconds() - before


def main():
    stores = sys.argv[1:]
    for name in ["CARGO_INCREMENTAL", "CARGO_PROFILE_DEV_DEBUG", "CARGO_TARGET_DIR"]:
        os.environ.pop(name, None)
    lines = ["| dependencies | crates | processor seconds |", "|---|---|---|"]
    for store in stores or ["", *STORES]:
        with tempfile.TemporaryDirectory() as directory:
            crates, seconds = measure(store, pathlib.Path(directory))
        name = f"actix-web, and idempotent-actix with `{store}`" if store else "actix-web"
        lines.append(f"| {name} | {crates} | {seconds:.0f} |")
        print(lines[-1], flush=True)
    if not stores:
        (BENCHES / "results/first_build.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
