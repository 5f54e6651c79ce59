//! The full patterns at which handlers are mounted, as the requests of the process have shown.

use std::{
    collections::HashMap,
    sync::{PoisonError, RwLock},
};

use actix_web::http::Method;

use crate::declaration::Declaration;

/// For each declaration, by its address, the methods and patterns of its requests.
#[derive(Default)]
pub(crate) struct Patterns(RwLock<HashMap<usize, Vec<(Method, String)>>>);

impl Patterns {
    /// Notes the pattern of a request. The patterns are those of the application, so they are few.
    pub(crate) fn note(&self, declaration: &'static Declaration, method: &Method, pattern: &str) {
        let address = address(declaration);
        let is_known = |known: &[(Method, String)]| {
            known.iter().any(|(with, known)| with == method && known == pattern)
        };
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if known.get(&address).is_some_and(|known| is_known(known)) {
            return;
        }
        drop(known);
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let known = known.entry(address).or_default();
        // Between the two locks another request may have noted the same pattern.
        if !is_known(known) {
            known.push((method.clone(), pattern.to_owned()));
            known.sort_by(|(_, one), (_, other)| one.cmp(other));
        }
    }

    /// The patterns of a declaration for requests with this method, in alphabetical order.
    pub(crate) fn of(&self, declaration: &'static Declaration, method: &str) -> Vec<String> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let known = known.get(&address(declaration)).into_iter().flatten();
        known.filter(|(with, _)| with == method).map(|(_, pattern)| pattern.clone()).collect()
    }
}

fn address(declaration: &'static Declaration) -> usize {
    std::ptr::from_ref(declaration).addr()
}
