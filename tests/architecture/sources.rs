//! The modules of a crate, as read from its source files, and which modules each of them uses.

#![allow(clippy::wildcard_enum_match_arm, reason = "few of the syntax tree's many variants matter")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use proc_macro2::{TokenStream, TokenTree};
use syn::{
    Attribute, Ident, Item, ItemMod, ItemUse, Macro, Meta, UseTree,
    visit::{self, Visit},
};

use crate::root;

/// The path of a module from the root of its crate. The path of the root is empty.
pub(crate) type Module = Vec<String>;

/// The contents of a module.
#[derive(Default)]
struct Contents {
    /// The paths that the module names and that begin with `crate`, `super`, `self` or a child.
    named: Vec<Vec<String>>,
    /// The imports: the local name, and the path as written.
    imports: BTreeMap<String, Vec<String>>,
    is_test: bool,
}

/// The modules of a crate. Modules of tests are included, but not examined.
pub(crate) struct Sources(BTreeMap<Module, Contents>);

/// Whether an item is compiled for tests only.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string().replace(' ', "");
            condition == "test" || condition.starts_with("all(test")
        }
        Meta::List(_) | Meta::Path(_) | Meta::NameValue(_) => false,
    })
}

/// The file that `#[path = "…"]` names.
pub(crate) fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(file), .. }) => Some(file.value()),
            _ => panic!("a `#[path]` that is not a string"),
        },
        Meta::NameValue(_) | Meta::Path(_) | Meta::List(_) => None,
    })
}

impl Sources {
    /// Reads the crate in a folder of the workspace.
    pub(crate) fn of(folder: &str) -> Self {
        let source = root().join(folder).join("src");
        let mut sources = Self(BTreeMap::new());
        let root = ["lib.rs", "main.rs"].map(|file| source.join(file));
        let root = root.iter().find(|file| file.exists()).unwrap();
        sources.read(Vec::new(), root, &source, false);
        assert!(sources.0.len() > 10, "{folder} has only {} modules", sources.0.len());
        sources
    }

    fn read(&mut self, module: Module, file: &Path, children: &Path, is_test: bool) {
        let text =
            fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let parsed =
            syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.enter(module, &parsed.items, children, is_test);
    }

    fn enter(&mut self, module: Module, items: &[Item], children: &Path, is_test: bool) {
        let mut found = Found::default();
        items.iter().for_each(|item| found.visit_item(item));
        let Found { named, imports, modules } = found;
        self.0.insert(module.clone(), Contents { named, imports, is_test });
        for child in modules {
            self.child(&module, &child, children, is_test);
        }
    }

    fn child(&mut self, parent: &Module, child: &ItemMod, folder: &Path, parent_is_test: bool) {
        let name = child.ident.to_string();
        let module = [parent.as_slice(), std::slice::from_ref(&name)].concat();
        let is_test = parent_is_test || is_test(&child.attrs);
        match &child.content {
            Some((_, items)) => self.enter(module, items, &folder.join(&name), is_test),
            None => {
                let file: PathBuf =
                    folder.join(path_attribute(&child.attrs).unwrap_or(format!("{name}.rs")));
                self.read(module, &file, &folder.join(&name), is_test);
            }
        }
    }

    /// The children of `parent`, without tests.
    pub(crate) fn children(&self, parent: &[String]) -> BTreeSet<&str> {
        let children = self.0.iter().filter(|(module, contents)| {
            module.len() == parent.len() + 1 && module.starts_with(parent) && !contents.is_test
        });
        children.map(|(module, _)| module.last().unwrap().as_str()).collect()
    }

    /// All modules, without tests.
    pub(crate) fn modules(&self) -> impl Iterator<Item = &Module> {
        self.0.iter().filter(|(_, contents)| !contents.is_test).map(|(module, _)| module)
    }

    /// All uses `(user, used)`: a module uses the modules of the items that it names.
    pub(crate) fn uses(&self) -> BTreeSet<(Module, Module)> {
        let mut uses = BTreeSet::new();
        for (module, contents) in self.0.iter().filter(|(_, contents)| !contents.is_test) {
            for named in &contents.named {
                if let Some(used) = self.resolve(module, named, 0).filter(|used| used != module) {
                    uses.insert((module.clone(), used));
                }
            }
        }
        uses
    }

    /// The module of the item that a path names; `None` if it is in another crate.
    fn resolve(&self, from: &Module, path: &[String], depth: usize) -> Option<Module> {
        assert!(depth < 20, "{path:?} in {from:?} resolves to itself");
        let mut at = from.clone();
        let mut rest = path;
        while let [first, others @ ..] = rest {
            match first.as_str() {
                "crate" => at.clear(),
                "super" => drop(at.pop()),
                "self" => {}
                name => {
                    let child = [at.as_slice(), &[name.to_owned()]].concat();
                    let import = self.0.get(&at).and_then(|contents| contents.imports.get(name));
                    if self.0.contains_key(&child) {
                        at = child;
                    } else if let Some(import) = import
                        && import[0] != name
                    {
                        return self.resolve(&at, &[import.as_slice(), others].concat(), depth + 1);
                    } else {
                        return (rest.len() < path.len()).then_some(at);
                    }
                }
            }
            rest = others;
        }
        Some(at)
    }
}

/// What is found in the items of a module.
#[derive(Default)]
struct Found {
    named: Vec<Vec<String>>,
    imports: BTreeMap<String, Vec<String>>,
    modules: Vec<ItemMod>,
}

impl Found {
    fn import(&mut self, tree: &UseTree, before: &[String]) {
        let with = |ident: &Ident| [before, &[ident.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.import(&path.tree, &with(&path.ident)),
            UseTree::Name(name) if name.ident == "self" => {
                self.imported(before.last().unwrap().clone(), before.to_vec())
            }
            UseTree::Name(name) => self.imported(name.ident.to_string(), with(&name.ident)),
            UseTree::Rename(renamed) => {
                self.imported(renamed.rename.to_string(), with(&renamed.ident))
            }
            UseTree::Glob(_) => self.named.push(before.to_vec()),
            UseTree::Group(group) => group.items.iter().for_each(|item| self.import(item, before)),
        }
    }

    fn imported(&mut self, name: String, path: Vec<String>) {
        self.named.push(path.clone());
        self.imports.insert(name, path);
    }

    /// Finds paths in the tokens of a macro: `crate` or `super`, and the names that follow.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ':' && !path.is_empty() => {
                    colons += 1
                }
                TokenTree::Ident(ident) if colons == 2 && !path.is_empty() => {
                    path.push(ident.to_string());
                    colons = 0;
                }
                other => {
                    self.end(&mut path);
                    colons = 0;
                    match other {
                        TokenTree::Ident(ident) if ident == "crate" || ident == "super" => {
                            path.push(ident.to_string())
                        }
                        TokenTree::Group(group) => self.tokens(group.stream()),
                        TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {}
                    }
                }
            }
        }
        self.end(&mut path);
    }

    fn end(&mut self, path: &mut Vec<String>) {
        let path = std::mem::take(path);
        if path.len() > 1 {
            self.named.push(path);
        }
    }
}

impl<'a> Visit<'a> for Found {
    fn visit_item(&mut self, item: &'a Item) {
        let attributes: &[Attribute] = match item {
            Item::Fn(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            Item::Struct(item) => &item.attrs,
            Item::Const(item) => &item.attrs,
            _ => &[],
        };
        if !is_test(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, module: &'a ItemMod) {
        self.modules.push(module.clone());
    }

    fn visit_item_use(&mut self, import: &'a ItemUse) {
        if import.leading_colon.is_none() {
            self.import(&import.tree, &[]);
        }
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let names: Vec<_> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if names.len() > 1 && ["crate", "super", "self"].contains(&names[0].as_str()) {
            self.named.push(names);
        }
        visit::visit_path(self, path);
    }

    /// A visibility, such as `pub(in crate::runtime)`, is no use.
    fn visit_vis_restricted(&mut self, _: &'a syn::VisRestricted) {}

    fn visit_macro(&mut self, call: &'a Macro) {
        self.tokens(call.tokens.clone());
    }
}
