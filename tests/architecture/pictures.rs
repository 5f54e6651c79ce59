//! `guide/pictures.md` defines the guides' pictures as data URLs for rustdoc, which copies no
//! files. In the repository the guides refer to the files, which are SVG, or PNG for screenshots.

use std::{fmt::Write as _, fs, path::Path};

use base64::prelude::{BASE64_STANDARD, Engine as _};

use crate::root;

#[test]
fn the_pictures_in_the_docs_are_up_to_date() {
    for package in ["idempotent-actix", "idempotent-client"] {
        check(&root().join(package).join("src/guide"));
    }
}

fn check(guides: &Path) {
    let mut files: Vec<_> = fs::read_dir(guides.join("pictures"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension != "md"))
        .collect();
    files.sort();
    let mut definitions = String::new();
    for file in files {
        let name = file.file_stem().unwrap().to_str().unwrap();
        let url = if file.extension().is_some_and(|extension| extension == "png") {
            format!("image/png;base64,{}", BASE64_STANDARD.encode(fs::read(&file).unwrap()))
        } else {
            let picture = fs::read_to_string(&file).unwrap();
            format!("image/svg+xml,{}", percent_encode(picture.trim_end().as_bytes()))
        };
        writeln!(definitions, "[picture-{name}]: data:{url}").unwrap();
    }
    let path = guides.join("pictures.md");
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &definitions).unwrap();
    }
    assert!(
        fs::read_to_string(&path).unwrap_or_default() == definitions,
        "{} is out of date: run `UPDATE=1 cargo test -p tests --test architecture`",
        path.display(),
    );
}

/// Keeps the unreserved characters of RFC 3986 §2.3, and the delimiters that Markdown and HTML
/// ignore.
fn percent_encode(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut url, &byte| {
        if byte.is_ascii_alphanumeric() || b"-._~=/:;,".contains(&byte) {
            url.push(char::from(byte));
        } else {
            write!(url, "%{byte:02X}").unwrap();
        }
        url
    })
}
