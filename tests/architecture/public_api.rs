//! `docs/public-api.md` lists every public name of `idempotent-actix` and of `idempotent-client`,
//! with the reason why it is public.

use std::{collections::BTreeSet, fs};

use syn::{Item, UseTree, Visibility};

use crate::root;

#[test]
fn every_public_name_has_a_reason() {
    let list = fs::read_to_string(root().join("docs/public-api.md")).unwrap();
    for package in ["idempotent-actix", "idempotent-client"] {
        check(package, &list);
    }
}

fn check(package: &str, list: &str) {
    let exported = exports(&format!("{package}/src/lib.rs"));
    let title = format!("## `{package}`");
    let section = list.lines().skip_while(|line| *line != title).skip(1);
    let documented: BTreeSet<String> = section
        .take_while(|line| !line.starts_with("## `"))
        .filter_map(|line| line.strip_prefix("| `"))
        .map(|line| {
            let (name, reason) = line.split_once("` | ").expect("a row has a name and a reason");
            assert!(reason.split_whitespace().count() > 2, "`{name}` has no reason");
            name.to_owned()
        })
        .collect();
    let missing: Vec<_> = exported.difference(&documented).collect();
    let gone: Vec<_> = documented.difference(&exported).collect();
    assert!(missing.is_empty(), "docs/public-api.md does not list {missing:?}");
    assert!(gone.is_empty(), "docs/public-api.md lists names that are not public: {gone:?}");
}

/// The names that a crate exports, with their modules: `Idempotency`, `scope::ScopeId`.
fn exports(path: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(root().join(path)).unwrap();
    let mut names = BTreeSet::new();
    collect(&syn::parse_file(&text).unwrap().items, "", path, &mut names);
    names
}

fn collect(items: &[Item], module: &str, path: &str, names: &mut BTreeSet<String>) {
    for item in items {
        let (visibility, attributes) = match item {
            Item::Use(item) => (&item.vis, &item.attrs),
            Item::Mod(item) => (&item.vis, &item.attrs),
            Item::Struct(item) => (&item.vis, &item.attrs),
            Item::Enum(item) => (&item.vis, &item.attrs),
            Item::Trait(item) => (&item.vis, &item.attrs),
            Item::Fn(item) => (&item.vis, &item.attrs),
            Item::Const(item) => (&item.vis, &item.attrs),
            Item::Static(item) => (&item.vis, &item.attrs),
            Item::Type(item) => (&item.vis, &item.attrs),
            _ => continue,
        };
        let hidden = attributes.iter().any(|attribute| {
            attribute.path().is_ident("doc")
                && attribute
                    .meta
                    .require_list()
                    .is_ok_and(|list| list.tokens.to_string() == "hidden")
        });
        if hidden || !matches!(visibility, Visibility::Public(_)) {
            continue;
        }
        match item {
            Item::Use(item) => leaves(&item.tree, module, names),
            Item::Mod(item) => submodule(item, module, path, names),
            Item::Struct(item) => insert(names, module, &item.ident),
            Item::Enum(item) => insert(names, module, &item.ident),
            Item::Trait(item) => insert(names, module, &item.ident),
            Item::Fn(item) => insert(names, module, &item.sig.ident),
            Item::Const(item) => insert(names, module, &item.ident),
            Item::Static(item) => insert(names, module, &item.ident),
            Item::Type(item) => insert(names, module, &item.ident),
            _ => {}
        }
    }
}

/// Collects the public names of a module, which is inline or a separate file. The guides have no
/// names.
fn submodule(item: &syn::ItemMod, parent: &str, path: &str, names: &mut BTreeSet<String>) {
    if item.ident == "guide" {
        return;
    }
    let module = format!("{parent}{}::", item.ident);
    if let Some((_, items)) = &item.content {
        return collect(items, &module, path, names);
    }
    let folder = path.strip_suffix("lib.rs").map(str::to_owned);
    let folder = folder.unwrap_or_else(|| format!("{}/", path.strip_suffix(".rs").unwrap()));
    let path = format!("{folder}{}.rs", item.ident);
    let text = fs::read_to_string(root().join(&path)).unwrap();
    collect(&syn::parse_file(&text).unwrap().items, &module, &path, names);
}

fn leaves(tree: &UseTree, module: &str, names: &mut BTreeSet<String>) {
    match tree {
        UseTree::Path(path) => leaves(&path.tree, module, names),
        UseTree::Group(group) => group.items.iter().for_each(|tree| leaves(tree, module, names)),
        UseTree::Name(name) => insert(names, module, &name.ident),
        UseTree::Rename(rename) => insert(names, module, &rename.rename),
        UseTree::Glob(_) => panic!("`{module}*` is re-exported; name what is public"),
    }
}

/// Adds a name. Two items with the same name are alternatives for different features.
fn insert(names: &mut BTreeSet<String>, module: &str, name: &syn::Ident) {
    names.insert(format!("{module}{name}"));
}
