//! The `Tx` parameter. It is known by its name, since a macro cannot see what a type alias stands for.

use quote::ToTokens;
use syn::{LitStr, Type, TypeGroup, TypeParen};

use crate::borrow::borrow;
use crate::errors::{Errors, Reported};
use crate::handler::Handler;

/// Right code for the parameter.
pub(crate) const EXAMPLE: &str = "write `mut tx: Tx<Postgres>`";

/// Reports a second `Tx`, one inside another type, and a missing one where `claim` is `"transaction"`, at that literal.
pub(crate) fn check(handler: &Handler, claim: Option<&LitStr>, errors: &mut Errors) -> Result<(), Reported> {
    let parameters = handler.parameters.iter();
    let certain = parameters.clone().filter(|parameter| parameter.cfg.is_empty());
    if let Some(second) = certain.flat_map(|parameter| taken(&parameter.ty)).nth(1) {
        let what = "the handler takes a second `Tx`, but its answer is recorded in one transaction; take one";
        return Err(errors.at(second, what, EXAMPLE));
    }
    let mut types = parameters.map(|parameter| &parameter.ty);
    if let Some(around) = types.clone().find(|ty| named(ty) && taken(ty).is_empty() && !borrows(ty)) {
        let what = "the handler needs the `Tx` itself, and this is another type around it; take `Tx` by value. \
            If it is another crate's `Tx`, import it under another name";
        return Err(errors.at(around, what, EXAMPLE));
    }
    match claim {
        Some(claim) if !types.any(named) => {
            let what = "`transaction` commits claim, work and response in one `Tx`, and the handler takes none; \
                add it as a parameter, written out as `Tx<…>` where it has a type alias";
            Err(errors.at(claim, what, EXAMPLE))
        }
        _ => Ok(()),
    }
}

/// Whether the type is reported already.
fn borrows(ty: &Type) -> bool {
    borrow(ty.to_token_stream()).is_some()
}

/// Each `Tx` that an extractor of this type gives by value: itself, or in a tuple.
fn taken(ty: &Type) -> Vec<&Type> {
    if let Type::Group(TypeGroup { elem, .. }) | Type::Paren(TypeParen { elem, .. }) = ty {
        return taken(elem);
    }
    if let Type::Tuple(tuple) = ty {
        return tuple.elems.iter().flat_map(taken).collect();
    }
    let own = matches!(ty, Type::Path(ty) if ty.path.segments.last().is_some_and(|name| name.ident == "Tx"));
    Vec::from_iter(own.then_some(ty))
}

/// Whether a `Tx` stands anywhere in the type.
pub(crate) fn named(ty: &Type) -> bool {
    let text = ty.to_token_stream().to_string();
    text.split(|c: char| c != '_' && !c.is_alphanumeric()).any(|word| word == "Tx")
}

#[cfg(test)]
mod tests {
    use proc_macro2::{Delimiter, Group, TokenTree};
    use quote::{ToTokens, quote};
    use syn::{Type, parse_quote};

    use super::{check, named, taken};
    use crate::errors::Errors;
    use crate::handler::Handler;

    /// What a `$ty:ty` becomes.
    fn from_a_declarative_macro(ty: Type) -> Type {
        let group = Group::new(Delimiter::None, ty.to_token_stream());
        let group: Type = syn::parse2(TokenTree::from(group).into()).unwrap();
        assert!(matches!(group, Type::Group(_)));
        group
    }

    #[test]
    fn a_transaction_is_known_by_the_last_segment_of_its_type() {
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
        for (ty, is_named, count) in &cases {
            assert_eq!((named(ty), taken(ty).len()), (*is_named, *count), "{}", ty.to_token_stream());
        }
    }

    #[test]
    fn one_transaction_is_enough_and_alternatives_are_one() {
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
            let handler = Handler::read(quote!(async fn pay(#parameters) {}), &mut errors).unwrap();
            assert_eq!(check(&handler, Some(&claim), &mut errors).is_ok(), fit, "{parameters}");
            assert_eq!(errors.is_empty(), fit, "{parameters}");
        }
    }
}
