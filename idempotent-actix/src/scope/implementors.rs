//! The types that identify a principal.

use std::{rc::Rc, sync::Arc};

use actix_web::{Error, web};
use uuid::Uuid;

use super::{IntoScopeKey, ScopeId, ScopeKey, ScopeValue};

impl IntoScopeKey for ScopeId {
    fn into_scope_key(self) -> Result<ScopeId, Option<Error>> {
        if self.is_empty() { Err(None) } else { Ok(self) }
    }
}

impl<T: IntoScopeKey> IntoScopeKey for Option<T> {
    fn into_scope_key(self) -> Result<ScopeId, Option<Error>> {
        self.ok_or(None)?.into_scope_key()
    }
}

impl<T: IntoScopeKey, E: Into<Error>> IntoScopeKey for Result<T, E> {
    fn into_scope_key(self) -> Result<ScopeId, Option<Error>> {
        self.map_err(|error| Some(error.into()))?.into_scope_key()
    }
}

impl<T: ScopeKey> ScopeKey for Option<T> {
    fn scope_key(&self) -> Option<ScopeId> {
        self.as_ref()?.scope_key()
    }
}

/// Pointers, which identify the same principal as the value that they point to.
macro_rules! by_pointer {
    ($($pointer:ty),*) => { $(
        impl<T: ScopeKey + ?Sized> ScopeKey for $pointer {
            fn scope_key(&self) -> Option<ScopeId> {
                (**self).scope_key()
            }
        }
    )* };
}

by_pointer!(&T, Box<T>, Rc<T>, Arc<T>);

impl<T: ScopeValue + Clone + 'static> ScopeKey for web::ReqData<T> {
    fn scope_key(&self) -> Option<ScopeId> {
        (**self).scope_value()
    }
}

impl<T: ScopeValue> ScopeKey for web::Path<T> {
    fn scope_key(&self) -> Option<ScopeId> {
        (**self).scope_value()
    }
}

impl<T: ScopeValue> ScopeKey for web::Header<T> {
    fn scope_key(&self) -> Option<ScopeId> {
        (**self).scope_value()
    }
}

impl ScopeKey for ScopeId {
    fn scope_key(&self) -> Option<ScopeId> {
        Some(self.clone())
    }
}

/// Types whose text identifies the principal.
macro_rules! by_text {
    ($($type:ty),*) => { $(
        impl ScopeValue for $type {
            fn scope_value(&self) -> Option<ScopeId> {
                Some(ScopeId::new(self.to_string()))
            }
        }
        impl IntoScopeKey for $type {
            fn into_scope_key(self) -> Result<ScopeId, Option<Error>> {
                ScopeId::new(self.to_string()).into_scope_key()
            }
        }
    )* };
}

by_text!(String, &str, u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, Uuid);

/// The scope is the user that has logged in with `actix-identity`. An expired identity identifies
/// no principal.
#[cfg(feature = "identity")]
impl ScopeKey for actix_identity::Identity {
    fn scope_key(&self) -> Option<ScopeId> {
        self.id().ok().map(|id| ScopeId::of("identity", id))
    }
}

/// The scope is the bearer token. The extractor alone does not verify the token; use it with a
/// validator of `actix-web-httpauth`.
#[cfg(feature = "httpauth")]
impl ScopeKey for actix_web_httpauth::extractors::bearer::BearerAuth {
    fn scope_key(&self) -> Option<ScopeId> {
        Some(ScopeId::of("bearer", self.token()))
    }
}

/// The scope is the user id. The extractor alone does not verify the password; use it with a
/// validator of `actix-web-httpauth`.
#[cfg(feature = "httpauth")]
impl ScopeKey for actix_web_httpauth::extractors::basic::BasicAuth {
    fn scope_key(&self) -> Option<ScopeId> {
        Some(ScopeId::of("basic", self.user_id()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scope::scope_of;

    #[test]
    fn texts_numbers_and_uuids_are_scopes_by_their_text() {
        let path = |text: &str| Some(ScopeId::new(text));
        let uuid = Uuid::from_u128(7);
        assert_eq!(scope_of(&web::Path::from(uuid)).ok(), path(&uuid.to_string()));
        assert_eq!(scope_of(&web::Path::from(-7i32)).ok(), path("-7"));
        assert_eq!(scope_of(&web::Path::from(7u16)).ok(), path("7"));
        assert_eq!(scope_of(&web::Path::from(String::from("7"))).ok(), path("7"));
        assert_eq!(scope_of(&Some(web::Path::from("7"))).ok(), path("7"));
        assert_eq!(
            scope_of(&web::Path::from(ScopeId::of("user", "7"))).ok(),
            Some(ScopeId::of("user", "7"))
        );
        assert_eq!(7usize.into_scope_key().ok(), path("7"));
    }

    #[test]
    fn a_pointer_has_the_scope_of_what_it_points_to() {
        let scope = ScopeId::of("user", "7");
        let boxed: Box<dyn ScopeKey> = Box::new(scope.clone());
        assert_eq!(scope_of(&boxed).ok(), Some(scope.clone()));
        assert_eq!(scope_of(&Rc::new(scope.clone())).ok(), Some(scope.clone()));
        assert_eq!(scope_of(&web::Path::from(Arc::new(scope.clone()))).ok(), Some(scope.clone()));
        assert_eq!(scope_of(&&scope).ok(), Some(scope));
    }

    #[test]
    fn no_principal_is_no_scope() {
        assert!(matches!(scope_of(&web::Path::from("")), Err(None)));
        assert!(matches!(scope_of(&None::<web::Path<String>>), Err(None)));
        assert!(matches!(String::new().into_scope_key(), Err(None)));
        assert!(matches!(Some("").into_scope_key(), Err(None)));
        let refused: Result<String, _> = Err(actix_web::error::ParseError::Method);
        assert!(matches!(refused.into_scope_key(), Err(Some(_))));
        let refused: actix_web::Result<String> = Err(actix_web::error::ErrorForbidden("no"));
        assert!(matches!(refused.into_scope_key(), Err(Some(_))));
        assert_eq!(5u64.into_scope_key().ok(), Some(ScopeId::new("5")));
    }
}
