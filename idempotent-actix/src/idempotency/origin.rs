//! Where a handle comes from.

use std::{any::type_name, fmt, panic::Location};

/// The store of a handle, and the place where the handle was built, for messages about two handles.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandleOrigin {
    store: &'static str,
    built_at: &'static Location<'static>,
}

impl HandleOrigin {
    pub(crate) fn new(store: &'static str, built_at: &'static Location<'static>) -> Self {
        Self { store, built_at }
    }
}

impl fmt::Display for HandleOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store, built_at } = self;
        write!(f, "`{store}`, built at {}:{}", built_at.file(), built_at.line())
    }
}

/// The name of a type, without its path.
pub(crate) fn short_name<T>() -> &'static str {
    let name = type_name::<T>();
    let path = name.split('<').next().unwrap_or(name);
    name.get(path.rfind("::").map_or(0, |at| at + 2)..).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::short_name;

    #[test]
    fn the_name_of_a_type_has_no_path() {
        assert_eq!(short_name::<super::HandleOrigin>(), "HandleOrigin");
        assert_eq!(short_name::<u8>(), "u8");
        assert_eq!(short_name::<Arc<super::HandleOrigin>>().split('<').next(), Some("Arc"));
    }
}
