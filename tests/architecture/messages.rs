//! `docs/messages.md` lists every text that a person can read: problems, error messages, log lines
//! and compile errors. `UPDATE=1 cargo test -p tests --test architecture` updates the file.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

use crate::{root, text::files};

/// Who reads a text. The variants are in the order of the file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Reader {
    Client,
    Operator,
    Log,
    Author,
}

impl Reader {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Client, "Responses: titles, details and bodies"),
        (Self::Operator, "Errors: start-up, configuration and stores"),
        (Self::Log, "Log lines"),
        (Self::Author, "Compile errors"),
    ];
}

/// Texts by reader and file, in the order in which they occur in the file.
type Texts = BTreeMap<(Reader, String), Vec<String>>;

#[test]
fn the_list_of_messages_is_up_to_date() {
    let mut texts = Texts::new();
    for (path, text) in files().iter().filter(|(path, _)| is_shipped(path)) {
        let file = syn::parse_file(text).unwrap();
        Collector { path: Path::new(path), texts: &mut texts, in_log: false }.visit_file(&file);
    }
    let path = root().join("docs/messages.md");
    let list = render(&texts);
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &list).unwrap();
    }
    let known = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        known == list,
        "{} is out of date: run `UPDATE=1 cargo test -p tests --test architecture` and read the \
         change",
        path.display(),
    );
}

/// Whether a file is part of a published crate, and not of its tests or the conformance suite.
fn is_shipped(path: &str) -> bool {
    let tests = ["tests", "tests.rs", "table.rs", "histories", "histories.rs", "interleaved.rs"];
    let excepted = ["conformance", "conformance.rs", "internals.rs"];
    let mut parts = path.split('/');
    parts.next().is_some_and(|krate| krate.starts_with("idempotent-"))
        && parts.next() == Some("src")
        && path.ends_with(".rs")
        && !parts.any(|part| tests.contains(&part) || excepted.contains(&part))
}

fn render(texts: &Texts) -> String {
    let mut list = String::from(
        "# Messages\n\nEvery text that a client, an operator or the author of a handler can read. \
         Generated from the\nsources by `UPDATE=1 cargo test -p tests --test architecture`; a test \
         keeps it up to date.\n`{…}` stands for a value.\n",
    );
    for (reader, title) in Reader::ALL {
        writeln!(list, "\n## {title}").unwrap();
        for ((_, path), texts) in texts.iter().filter(|((of, _), _)| *of == reader) {
            writeln!(list, "\n`{path}`\n").unwrap();
            for text in texts {
                writeln!(list, "* {}", text.replace('\n', " ⏎ ")).unwrap();
            }
        }
    }
    list
}

/// The files whose texts are sent to clients.
const CLIENT: [&str; 7] = [
    "idempotent-actix/src/builder/settings.rs",
    "idempotent-actix/src/request/",
    "idempotent-actix/src/run/failure.rs",
    "idempotent-actix/src/unsupported.rs",
    "idempotent-core/src/key.rs",
    "idempotent-http/src/key",
    "idempotent-http/src/problem",
];

/// Keywords of SQL, which no sentence contains in upper case, except in backquotes.
const SQL: &str = "AND AS BEGIN BY CREATE DELETE FROM INSERT PRAGMA RELEASE ROLLBACK SAVEPOINT \
                   SELECT SET SHOW UPDATE WITH";

/// Methods whose arguments are compared with a text or explain a panic, so that no person reads
/// them.
const COMPARISONS: [&str; 7] = [
    "contains",
    "ends_with",
    "expect",
    "split_whitespace",
    "starts_with",
    "strip_prefix",
    "strip_suffix",
];

/// Whether a text has at least three words, not counting placeholders, and is not SQL.
fn is_sentence(text: &str) -> bool {
    // Every second part is in backquotes, and counts as a word.
    let parts = text.split('`').enumerate();
    let prose: String = parts.map(|(at, part)| if at % 2 == 0 { part } else { "code" }).collect();
    let words: Vec<&str> = prose
        .split_whitespace()
        .map(|word| after_values(word).trim_matches(|letter: char| !letter.is_alphabetic()))
        .filter(|word| !word.is_empty())
        .collect();
    let is_sql = words.iter().any(|word| SQL.split(' ').any(|sql| sql == *word));
    words.len() > 2 && !is_sql && !text.contains("current_setting(")
}

/// The part of a word that follows its placeholders.
fn after_values(word: &str) -> &str {
    word.rsplit('}').next().unwrap_or(word)
}

/// Whether a group is the content of `#[doc = "…"]`.
fn is_doc(group: &proc_macro2::Group) -> bool {
    matches!(group.stream().into_iter().next(), Some(TokenTree::Ident(name)) if name == "doc")
}

/// Collects the string literals that are sentences.
struct Collector<'a> {
    path: &'a Path,
    texts: &'a mut Texts,
    in_log: bool,
}

impl Collector<'_> {
    fn add(&mut self, text: &str) {
        let path = self.path.display().to_string();
        let reader = self.reader(&path);
        if reader != Reader::Author && !is_sentence(text) || text.split_whitespace().count() < 3 {
            return;
        }
        let texts = self.texts.entry((reader, path)).or_default();
        if !texts.iter().any(|known| known == text) {
            texts.push(text.to_owned());
        }
    }

    fn reader(&self, path: &str) -> Reader {
        if path.starts_with("idempotent-macros") || path.ends_with("on_unimplemented") {
            Reader::Author
        } else if self.in_log {
            Reader::Log
        } else if CLIENT.iter().any(|of_client| path.starts_with(of_client)) {
            Reader::Client
        } else {
            Reader::Operator
        }
    }

    fn add_tokens(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) if is_doc(&group) => {}
                TokenTree::Group(group) => self.add_tokens(group.stream()),
                TokenTree::Literal(literal) => {
                    if let Ok(text) = syn::parse_str::<syn::LitStr>(&literal.to_string()) {
                        self.add(&text.value());
                    }
                }
                TokenTree::Ident(_) | TokenTree::Punct(_) => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Collector<'_> {
    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        let path = attribute.path();
        let Ok(list) = attribute.meta.require_list() else { return };
        if path.is_ident("error") {
            self.add_tokens(list.tokens.clone());
        } else if path.segments.iter().any(|segment| segment.ident == "on_unimplemented") {
            let reader = (Reader::Author, self.path.display().to_string());
            let mut found = Texts::new();
            let mut collector =
                Collector { path: Path::new("on_unimplemented"), texts: &mut found, in_log: false };
            collector.add_tokens(list.tokens.clone());
            self.texts.entry(reader).or_default().extend(found.into_values().flatten());
        }
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        if !is_test(&function.attrs) {
            visit::visit_item_fn(self, function);
        }
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if !COMPARISONS.iter().any(|name| call.method == name) {
            visit::visit_expr_method_call(self, call);
        } else if !matches!(*call.receiver, syn::Expr::Lit(_)) {
            self.visit_expr(&call.receiver);
        }
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        let log = call.path.segments.first().is_some_and(|first| first.ident == "tracing");
        let name = call.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default();
        if ["include_str", "concat", "debug_assert", "assert", "unreachable", "quote", "matches"]
            .contains(&name.as_str())
        {
            return;
        }
        let before = self.in_log;
        self.in_log |= log;
        self.add_tokens(call.tokens.clone());
        self.in_log = before;
    }

    fn visit_lit_str(&mut self, literal: &'ast syn::LitStr) {
        self.add(&literal.value());
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && attribute
                    .meta
                    .require_list()
                    .is_ok_and(|list| list.tokens.to_string().contains("test"))
    })
}
