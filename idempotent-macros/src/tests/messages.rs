//! Every message, with the tokens at which it is reported, is in `golden/messages.txt`.

use std::fmt::Write;

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::{ImplItem, Item};

use crate::errors::Errors;
use crate::expand::checked;

const HANDLER: &str = "#[post(\"/\")] \
    async fn pay(user: User, web::Path(id): web::Path<u64>) -> HttpResponse { pay() }";

/// Attributes with mistakes, above a correct handler.
const ARGS: &[&str] = &[
    "",
    "ttl = \"1h\"",
    "scope = \"\"",
    "scope = user",
    "scope = \"id\"",
    "scope = \"user.id\"",
    "scop = \"user\"",
    "scope = \"user\", tll = \"1h\"",
    "scope = \"user\", colour = \"red\"",
    "scope = \"user\", scope = \"user\"",
    "scope = \"user\", ttl",
    "scope: \"user\"",
    "scope = \"user\"; ttl = \"1h\"",
    "\"user\"",
    "user",
    "scope",
    "ttl",
    "scope = \"_\"",
    "scope = \"usr\"",
    "scope = \"r#user.id\"",
    "scope = \"user\", ttl = , wait = \"5s\"",
    "scope = \"user\", wait(\"5s\")",
    "scope = \"user\", \"24h\"",
    "scope = \"user\", ttl = \"\"",
    "scope = \"user\", ttl = \"90\"",
    "scope = \"user\", ttl = \"0h\"",
    "scope = \"user\", ttl = \"99999999999999999999d\"",
    "scope = \"user\", ttl = \"5w\"",
    "scope = \"user\", ttl = 24",
    "scope = \"user\", ttl = 24h",
    "scope = \"user\", ttl = \"1.5h\"",
    "scope = \"user\", ttl = \"-1h\"",
    "scope = \"user\", ttl = -1",
    "scope = \"user\", ttl = \"1h 30m\"",
    "scope = \"user\", ttl = \"30m1h\"",
    "scope = \"user\", ttl = concat!(\"24\", \"h\")",
    "scope = \"user\", lease = \"0s\"",
    "scope = \"user\", wait = \"0\"",
    "scope = \"user\", wait = \"soon\"",
    "scope = \"user\", timeout = \"0s\"",
    "scope = \"user\", ttl = \"59s\"",
    "scope = \"user\", lease = \"13h\"",
    "scope = \"user\", lease = \"10s\", ttl = \"15s\"",
    "scope = \"user\", lease = \"10\", ttl = \"15s\"",
    "scope = \"user\", key = \"requird\"",
    "scope = \"user\", key = \"never\"",
    "scope = \"user\", key_from = \"headr:webhook-id\"",
    "scope = \"user\", key_from = \"query:id\"",
    "scope = \"user\", key_from = \"header:\"",
    "scope = \"user\", key_from = \"header:webhook id\"",
    "scope = \"user\", key_from = \"form: \"",
    "scope = \"user\", key_from = \"json:id\"",
    "scope = \"user\", key_from = \"json:\"",
    "scope = \"user\", key_from = \"json:/a~b\"",
    "scope = \"user\", key_from = \"Form\"",
    "scope = \"user\", key_from = \"webhook-id\"",
    "scope = \"user\", key_from = \"the body\"",
    "scope = \"user\", fingerprint = \"JSON\"",
    "scope = \"user\", fingerprint = \"the body\"",
    "scope = \"user\", ignore = [\"/a\"]",
    "scope = \"user\", fingerprint = \"body\", only = [\"/a\"]",
    "scope = \"user\", fingerprint = \"amount\", only = [\"/a\"]",
    "scope = \"user\", fingerprint = \"jsn!\", only = [\"/a\"]",
    "scope = \"user\", fingerprint = \"json\", ignore = [\"/a\"], only = [\"/b\"]",
    "scope = \"user\", fingerprint = \"json\", ignore = \"/a\"",
    "scope = \"user\", fingerprint = \"json\", ignore = [a]",
    "scope = \"user\", fingerprint = \"json\", only = []",
    "scope = \"user\", fingerprint = \"json\", only",
    "scope = \"user\", fingerprint = \"json\", only = [\"a\", \"/~2\", \"\", \"/b\", \"/b\"]",
    "scope = \"user\", fingerprint = \"json\", ignore = [\"/a/b\", \"/a\", \"/ab\"]",
    "scope = \"user\", fingerprint = \"json\", ignore = [\"/a\", \"/a/0\"]",
    "scope = \"user\", query = \"sorted\"",
    "scope = \"user\", content_type = \"equal\"",
    "scope = \"user\", fingerprint = \"none\", content_type = \"equivalent\"",
    "scope = \"user\", fingerprint = \"amount\", content_type = \"exact\"",
    "scope = \"user\", record = \"some\"",
    "scope = \"user\", abandoned = \"drop\"",
    "scope = \"user\", claim = \"transaction\"",
    "scope = \"user\", claim = \"transction\"",
    "scope = \"user\", claim = \"lease\", lease = \"13h\"",
    "scope = \"user\", claim = \"row\"",
    "scope = \"user\", method = \"PUT\"",
    "scope = \"user\", method = \"GET\"",
    "scope = \"user\", method = \"post\"",
    "scope = \"user\", name = \"\"",
    "scope = \"user\", crate = \"not a path\"",
    "scoope = \"user\", ttl = \"1\", lease = \"0s\", key = \"no\", \
        name = \" \", method = \"GET\", wait",
];

/// Attributes with mistakes, above a handler that takes a transaction.
const TRANSACTIONS: &[&str] = &[
    "lease = \"5s\"",
    "lease = \"soon\", abandoned = \"hold\"",
    "abandoned = \"drop\"",
    "ttl = \"0s\"",
    "in_flight = \"poll\"",
];

/// Parameters with mistakes, under `claim = "transaction"`.
const TRANSACTION_PARAMETERS: &[&str] = &[
    "tx: PaymentTx",
    "tx: Option<Tx<Postgres>>",
    "tx: web::Data<idempotent_actix::Tx<Postgres>>",
    "tx: &mut Tx<Postgres>",
    "(body, tx): (Body, Option<&mut Tx<Postgres>>)",
    "tx: Tx<Postgres>, body: Body, Tx(other): idempotent_actix::Tx<Sqlite>, third: Tx<Sqlite>",
    "(tx, other): (Tx<Postgres>, Tx<Postgres>)",
];

/// Items that no lookup finds, under `in_flight = "poll"` and another key.
const POLLED: &[(&str, &str)] = &[
    ("wait = \"1s\"", "#[post(\"/\")] async fn pay<T>(user: User, body: web::Json<T>) {}"),
    ("name = \"pay\", method = \"POST\"", "async fn pay(user: User, body: web::Json<Self>) {}"),
    ("method = \"POST\"", "async fn pay(user: User) {}"),
];

/// Items with mistakes, under `scope = "user"`.
const ITEMS: &[&str] = &[
    "#[get(\"/\")] async fn pay(user: User) {}",
    "#[actix_web::head(\"/\")] async fn pay(user: User) {}",
    "#[options(\"/\")] async fn pay(user: User) {}",
    "#[trace(\"/\")] async fn pay(user: User) {}",
    "#[connect(\"/\")] async fn pay(user: User) {}",
    "#[route(\"/\", method = \"POST\", method = \"GET\")] async fn pay(user: User) {}",
    "#[route(\"/\", method = \"PURGE\")] async fn pay(user: User) {}",
    "#[route(\"/\")] async fn pay(user: User) {}",
    "#[routes] #[post(\"/\")] #[get(\"/\")] async fn pay(user: User) {}",
    "#[routes] async fn pay(user: User) {}",
    "async fn pay(user: User) {}",
    "#[post(\"/\")] #[idempotent(scope = \"user\")] async fn pay(user: User) {}",
    "#[idempotent_actix::idempotent(scope = \"user\")] #[post(\"/\")] async fn pay(user: User) {}",
    "#[post(\"/\")] pub struct Payment;",
    "#[post(\"/\")] mod payments {}",
    "#[post(\"/\")] fn pay(user: User) {}",
    "#[post(\"/\")] const fn pay(user: User) {}",
    "#[post(\"/\")] async unsafe fn pay(user: User) {}",
    "#[post(\"/\")] async extern \"C\" fn pay(user: User) {}",
    "#[post(\"/\")] async fn pay(user: User, more: ...) {}",
    "impl Bank { #[post(\"/\")] pub async fn pay(&self, user: User) {} }",
    "impl Bank { #[post(\"/\")] async fn pay(mut self: Box<Self>, user: User) {} }",
    "#[post(\"/\")] async fn pay(user: User, body: &str) {}",
    "#[post(\"/\")] async fn pay<'a>(user: User, (body, query): (Body<'a>, &'a str)) {}",
    "#[post(\"/\")] async fn pay(user: User, tx: &mut Tx<Postgres>, \
        connection: &mut PgConnection) {}",
    "#[post(\"/\")] async fn pay(user: User, tx: Tx<Postgres>, other: Tx<Postgres>) {}",
    "#[post(\"/\")] async fn pay(user: User, a: A, a: A, a: A, a: A, a: A, \
        a: A, a: A, a: A, a: A, a: A, a: A, a: A, a: A, a: A, last: A, one: A) {}",
    "#[post(\"/\")] unsafe extern \"C\" fn pay(user: &User, body: Ref<'_>) {}",
];

/// Routes whose requests have no body, under a key that is in the body.
const WITHOUT_BODY: &[&str] = &[
    "#[delete(\"/\")] async fn pay(user: User) {}",
    "#[route(\"/\", method = \"POST\", method = \"DELETE\")] async fn pay(user: User) {}",
];

fn tokens(item: &str) -> TokenStream {
    let parsed: Item = syn::parse_str(item).unwrap();
    if let Item::Impl(block) = &parsed
        && let [ImplItem::Fn(method)] = block.items.as_slice()
    {
        return method.to_token_stream();
    }
    parsed.to_token_stream()
}

fn describe(keys: &str, item: &str) -> String {
    let mut errors = Errors::default();
    let item = checked(syn::parse_str(keys).unwrap(), tokens(item), &mut errors);
    let mut text = String::new();
    for (at, message) in errors.messages() {
        let at = at.unwrap_or_else(|| "#[idempotent]".to_owned());
        writeln!(text, "    at  {at}\n        {}", message.replace('\n', "\n        ")).unwrap();
    }
    assert!(errors.count() > 0, "no mistake was reported for {keys}");
    assert!(!item.is_empty(), "the expansion does not contain the item");
    text
}

#[test]
fn every_mistake_is_reported_at_its_token() {
    let mut all = String::new();
    for keys in ARGS {
        write!(all, "#[idempotent({keys})]\n{}\n", describe(keys, HANDLER)).unwrap();
    }
    for keys in TRANSACTIONS {
        let keys = format!("scope = \"user\", claim = \"transaction\", {keys}");
        let handler = HANDLER.replace("(user", "(mut tx: Tx<Postgres>, user");
        write!(all, "#[idempotent({keys})]\n{}\n", describe(&keys, &handler)).unwrap();
    }
    for parameters in TRANSACTION_PARAMETERS {
        let item = format!("#[post(\"/\")] async fn pay(user: User, {parameters}) {{}}");
        let keys = "scope = \"user\", claim = \"transaction\"";
        write!(all, "#[idempotent({keys})] {item}\n{}\n", describe(keys, &item)).unwrap();
    }
    for item in ITEMS {
        write!(all, "{item}\n{}\n", describe("scope = \"user\"", item)).unwrap();
    }
    for (key, item) in POLLED {
        let keys = format!("scope = \"user\", in_flight = \"poll\", {key}");
        write!(all, "#[idempotent({keys})] {item}\n{}\n", describe(&keys, item)).unwrap();
    }
    for item in WITHOUT_BODY {
        let keys = "scope = \"user\", key_from = \"form:key\"";
        write!(all, "#[idempotent({keys})] {item}\n{}\n", describe(keys, item)).unwrap();
    }
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/messages.txt");
    expect_test::expect_file![path].assert_eq(&all);
}
