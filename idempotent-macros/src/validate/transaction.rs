//! The `Tx` parameter, recognized by its name: a macro cannot see through a type alias. What the
//! generated code does with a `Tx` depends on its type instead.

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::{Type, TypeGroup, TypeParen};

use super::borrows::borrow;
use crate::errors::Errors;
use crate::model::handler::Handler;

/// Help text: a correct parameter.
pub(crate) const EXAMPLE: &str = "write `mut tx: Tx<Postgres>`";

/// Reports a second `Tx`, a `Tx` inside another type, and a missing `Tx`. `claim` is the literal of
/// `claim = "transaction"`, which requires one.
pub(crate) fn check(handler: &Handler, claim: Option<&TokenStream>, errors: &mut Errors) {
    let parameters = handler.parameters.iter();
    let unconditional = parameters.clone().filter(|parameter| parameter.cfg.is_empty());
    if let Some(second) = unconditional.flat_map(|parameter| values(&parameter.ty)).nth(1) {
        let what = "the handler has a second `Tx`, but its response is recorded in one \
            transaction; keep one";
        errors.at(second, what, EXAMPLE);
        return;
    }
    let mut types = parameters.map(|parameter| &parameter.ty).filter(|ty| mentioned(ty));
    // A borrowed `Tx` is reported as a borrow.
    let enclosed = |ty: &&Type| values(ty).is_empty() && borrow(ty.to_token_stream()).is_none();
    if let Some(around) = types.clone().find(enclosed) {
        let what = "`Tx` is inside another type, where the guard cannot reach it; \
            take it by value, or rename the import if this is another crate's `Tx`";
        errors.at(around, what, EXAMPLE);
    } else if let Some(claim) = claim
        && types.next().is_none()
    {
        let what = "`claim = \"transaction\"` needs a `Tx` parameter, and the handler has none; \
            add one, spelled `Tx<…>` rather than with a type alias";
        errors.at(claim, what, EXAMPLE);
    }
}

/// Each `Tx` that an extractor of this type yields by value: the type itself, or an element of a
/// tuple.
pub(crate) fn values(ty: &Type) -> Vec<&Type> {
    if let Type::Group(TypeGroup { elem, .. }) | Type::Paren(TypeParen { elem, .. }) = ty {
        return values(elem);
    }
    if let Type::Tuple(tuple) = ty {
        return tuple.elems.iter().flat_map(values).collect();
    }
    let Type::Path(path) = ty else { return Vec::new() };
    let own = path.path.segments.last().is_some_and(|name| name.ident == "Tx");
    Vec::from_iter(own.then_some(ty))
}

/// The type of a `Tx` in a tuple, for checks, which see any other by the types of the parameters.
/// `None` for a generic handler, whose types a static cannot name, and where `cfg` decides whether
/// there is one.
pub(crate) fn in_tuple(handler: &Handler) -> Option<&Type> {
    let parameters = handler.parameters.iter().filter(|parameter| parameter.cfg.is_empty());
    let mut types = parameters.filter_map(|parameter| first_in_tuple(&parameter.ty));
    types.next().filter(|_| handler.has_static_types())
}

fn first_in_tuple(ty: &Type) -> Option<&Type> {
    if let Type::Group(TypeGroup { elem, .. }) | Type::Paren(TypeParen { elem, .. }) = ty {
        return first_in_tuple(elem);
    }
    let Type::Tuple(_) = ty else { return None };
    values(ty).into_iter().next()
}

/// Whether the type mentions a `Tx` anywhere.
pub(crate) fn mentioned(ty: &Type) -> bool {
    let text = ty.to_token_stream().to_string();
    text.split(|c: char| c != '_' && !c.is_alphanumeric()).any(|word| word == "Tx")
}

#[cfg(test)]
mod tests {
    use proc_macro2::{Delimiter, Group, TokenTree};
    use quote::{ToTokens, quote};
    use syn::{Type, parse_quote};

    use super::{check, mentioned, values};
    use crate::errors::Errors;
    use crate::model::handler::Handler;

    /// The form in which `macro_rules!` passes a `$ty:ty`.
    fn from_a_declarative_macro(ty: Type) -> Type {
        let group = Group::new(Delimiter::None, ty.to_token_stream());
        let group: Type = syn::parse2(TokenTree::from(group).into()).unwrap();
        assert!(matches!(group, Type::Group(_)));
        group
    }

    #[test]
    fn a_transaction_is_recognized_by_the_last_segment_of_its_type() {
        let cases: [(Type, bool, usize); 14] = [
            (parse_quote!(Tx<Postgres>), true, 1),
            (parse_quote!(Tx), true, 1),
            (parse_quote!(::idempotent_actix::Tx<sqlx::Postgres>), true, 1),
            (parse_quote!((Tx<Postgres>)), true, 1),
            (parse_quote!((User, (Tx<Postgres>, Tx<Sqlite>))), true, 2),
            (from_a_declarative_macro(parse_quote!(Tx<Sqlite>)), true, 1),
            (parse_quote!(Option<Tx<Postgres>>), true, 0),
            (parse_quote!(web::Data<Tx<Postgres>>), true, 0),
            (parse_quote!(&mut Tx<Postgres>), true, 0),
            (parse_quote!([Tx<Postgres>; 2]), true, 0),
            (parse_quote!(Tx::Postgres), true, 0),
            (parse_quote!(Txs<Postgres>), false, 0),
            (parse_quote!(web::Data<PgTx>), false, 0),
            (parse_quote!(tx::Pool), false, 0),
        ];
        for (ty, is_mentioned, count) in &cases {
            assert_eq!(
                (mentioned(ty), values(ty).len()),
                (*is_mentioned, *count),
                "{}",
                ty.to_token_stream()
            );
        }
    }

    #[test]
    fn a_handler_has_one_transaction_and_cfg_alternatives_count_as_one() {
        let claim = parse_quote!("transaction");
        for (parameters, fit) in [
            (quote!(tx: Tx<Postgres>), true),
            (quote!(user: User, Tx(mut tx): idempotent_actix::Tx<Postgres>), true),
            (quote!((user, mut tx): (User, Tx<Postgres>)), true),
            (quote!(tx: Tx<Postgres>, other: Option<Tx<Postgres>>), false),
            (quote!(tx: Result<Tx<Postgres>, Error>), false),
            (quote!(#[cfg(a)] tx: Tx<Postgres>, #[cfg(not(a))] tx: Tx<Sqlite>), true),
            (quote!(#[cfg(a)] body: Body, tx: Tx<Postgres>, more: Tx<Postgres>), false),
            (quote!(tx: Transaction), false),
            (quote!(), false),
        ] {
            let mut errors = Errors::default();
            let handler: Handler = syn::parse_quote!(async fn pay(#parameters) {});
            check(&handler, Some(&claim), &mut errors);
            assert_eq!(errors.count() == 0, fit, "{parameters}");
        }
    }
}
