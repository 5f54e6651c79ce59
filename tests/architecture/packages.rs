//! The contents of the published packages.

use crate::cargo;

const PUBLISHED: [&str; 14] = [
    "idempotent-core",
    "idempotent-http",
    "idempotent-sql",
    "idempotent-sqlite",
    "idempotent-postgres",
    "idempotent-mysql",
    "idempotent-redis",
    "idempotent-dynamodb",
    "idempotent-macros",
    "idempotent-actix",
    "idempotent-client",
    "idempotent-cli",
    "idempotent-console",
    "idempotent-test",
];

/// The folders of a published crate. Its manifest, licenses and Markdown files are at its root.
/// Unit tests read `golden`.
const FOLDERS: &[&str] = &["src/", "golden/"];

fn is_package_metadata(file: &str) -> bool {
    !file.contains('/')
        && (file.starts_with("Cargo.")
            || file.starts_with("LICENSE")
            || file.ends_with(".md")
            || file.starts_with('.'))
}

#[test]
fn packages_contain_no_tests_beyond_unit_tests() {
    for package in PUBLISHED {
        let files = cargo(&["package", "--offline", "--allow-dirty", "--list", "-p", package]);
        let is_root = |file: &String| file == "src/lib.rs" || file == "src/main.rs";
        assert!(files.iter().any(is_root), "{package}: {files:?}");
        for file in &files {
            let expected =
                is_package_metadata(file) || FOLDERS.iter().any(|place| file.starts_with(place));
            assert!(expected, "{package} publishes {file}");
        }
    }
}

#[test]
fn no_other_crate_is_published() {
    let metadata = cargo(&["metadata", "--offline", "--no-deps", "--format-version", "1"]).concat();
    let metadata: serde_json::Value = serde_json::from_str(&metadata).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let published = packages.iter().filter(|package| package["publish"].is_null());
    let mut published: Vec<_> =
        published.map(|package| package["name"].as_str().unwrap()).collect();
    published.sort_unstable();
    let mut expected = PUBLISHED;
    expected.sort_unstable();
    assert_eq!(published, expected);
}
