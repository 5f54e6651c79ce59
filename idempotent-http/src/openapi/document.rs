//! An OpenAPI document: its operations, its components, and what its references name.

use serde_json::{Map, Value, json};

use super::{OpenApiReport, matching::Place};

/// The methods that a path item can have and a server can guard.
const METHODS: [&str; 6] = ["get", "post", "put", "patch", "delete", "head"];
/// The most references that follow each other.
const HOPS: usize = 8;

/// A document of OpenAPI 3.
pub(super) struct Document<'a> {
    root: &'a mut Value,
    /// Whether it is of OpenAPI 3.0, whose schemas are not those of JSON Schema.
    pub(super) is_3_0: bool,
}

impl<'a> Document<'a> {
    /// `None` if the value is no document of OpenAPI 3.
    pub(super) fn new(root: &'a mut Value) -> Option<Self> {
        let version = root.get("openapi")?.as_str()?;
        let is_3_0 = version.starts_with("3.0.");
        version.starts_with("3.").then_some(Self { root, is_3_0 })
    }

    /// The operations of the paths. Those that are in other documents are reported.
    pub(super) fn operations(&self, report: &mut OpenApiReport) -> Vec<Place> {
        let paths = self.root.get("paths").and_then(Value::as_object);
        let mut places = Vec::new();
        for (path, item) in paths.into_iter().flatten() {
            let own = format!("/paths/{}", escaped(path));
            places.extend(operations_in(item, path, &own));
            if item.get("$ref").is_none() {
                continue;
            }
            match self.resolved(item) {
                Some((pointer, item)) => places.extend(operations_in(item, path, &pointer)),
                None => {
                    report.ambiguous.push(format!("{path}: its path item is not in the document"))
                }
            }
        }
        let shared = |place: &Place| {
            let same = places.iter().filter(|other| other.pointer == place.pointer);
            same.count() > 1
        };
        let shared: Vec<_> = places.iter().map(shared).collect();
        for (place, shared) in places.iter_mut().zip(shared) {
            place.shared = shared;
        }
        places
    }

    /// What a value is, or refers to, with the place of what it refers to. `None` if that is in
    /// another document, or nowhere.
    pub(super) fn resolved<'v>(&'v self, value: &'v Value) -> Option<(String, &'v Value)> {
        let (mut value, mut place) = (value, String::new());
        for _ in 0..HOPS {
            let Some(reference) = value.get("$ref") else { return Some((place, value)) };
            place = unescaped(reference.as_str()?.strip_prefix('#')?);
            value = self.root.pointer(&place)?;
        }
        None
    }

    /// The value at a place.
    pub(super) fn at(&self, pointer: &str) -> Option<&Value> {
        self.root.pointer(pointer)
    }

    /// Takes the value at a place out of the document, until it is put back.
    pub(super) fn take(&mut self, pointer: &str) -> Value {
        self.root.pointer_mut(pointer).map(Value::take).unwrap_or_default()
    }

    /// Puts a value back.
    pub(super) fn put(&mut self, pointer: &str, value: Value) {
        if let Some(place) = self.root.pointer_mut(pointer) {
            *place = value;
        }
    }

    /// A reference to a component, which is added unless the document has it. If a component of
    /// this name differs, a number follows the name. Without room for components in the document,
    /// it is the component itself.
    pub(super) fn component(&mut self, section: &str, name: &str, component: Value) -> Value {
        let Some(components) = self.section(section) else { return component };
        let names = std::iter::once(name.to_owned());
        let mut names = names.chain((2..).map(|number: u32| format!("{name}_{number}")));
        let free = |name: &String| components.get(name).is_none_or(|found| *found == component);
        let Some(name) = names.find(free) else { return component };
        let reference = json!({ "$ref": format!("#/components/{section}/{name}") });
        components.insert(name, component);
        reference
    }

    fn section(&mut self, section: &str) -> Option<&mut Map<String, Value>> {
        let components = self.root.as_object_mut()?.entry("components");
        let components = components.or_insert_with(|| json!({})).as_object_mut()?;
        components.entry(section).or_insert_with(|| json!({})).as_object_mut()
    }
}

/// The operations that a path item has itself.
fn operations_in(item: &Value, path: &str, pointer: &str) -> Vec<Place> {
    let found = METHODS.into_iter().filter_map(|method| {
        let operation = item.get(method)?.as_object()?;
        let id = operation.get("operationId").and_then(Value::as_str);
        Some(Place {
            path: path.to_owned(),
            method: method.to_ascii_uppercase(),
            id: id.map(str::to_owned),
            item: pointer.to_owned(),
            pointer: format!("{pointer}/{method}"),
            shared: false,
        })
    });
    found.collect()
}

/// A name as a part of a JSON pointer (RFC 6901 §3).
pub(super) fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// The JSON pointer of the fragment of a URL (RFC 6901 §6).
fn unescaped(fragment: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = fragment.bytes();
    while let Some(byte) = rest.next() {
        let mut digits = rest.clone();
        let code = (byte == b'%').then(|| hex(digits.next()?, digits.next()?)).flatten();
        if code.is_some() {
            rest = digits;
        }
        bytes.push(code.unwrap_or(byte));
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex(high: u8, low: u8) -> Option<u8> {
    let digit = |digit: u8| u8::try_from(char::from(digit).to_digit(16)?).ok();
    Some(digit(high)? << 4 | digit(low)?)
}
