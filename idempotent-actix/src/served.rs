//! Which handler and which handle serve the operations of an application, to report two of them.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeSet, HashMap},
    sync::{Mutex, PoisonError},
};

use actix_web::{HttpRequest, dev::ResourceMap};

use crate::{
    declaration::Declaration,
    idempotency::{HandleIdentity, HandleOrigin, Idempotency},
};

/// The most operations of an application that are remembered: names can contain the path.
const MOST: usize = 1024;

/// The operation of a name, as it was first served.
struct Served {
    operation: &'static Declaration,
    namespace: String,
    handle: HandleIdentity,
    origin: HandleOrigin,
    reported: bool,
}

/// The names of the operations that were reported, by whichever thread.
static REPORTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

thread_local! {
    /// The operations of each application of this thread, which its resources identify.
    static SERVED: RefCell<HashMap<*const ResourceMap, HashMap<String, Served>>> =
        RefCell::default();

    /// The application, the handle and the handler of the last request: most requests are like the
    /// one before, and two of an operation take turns.
    static LAST: Cell<[usize; 3]> = const { Cell::new([0; 3]) };
}

/// Notes what serves an operation. Logs once if another handler or another handle serves the
/// operation of this name too: keys are then shared, or not shared, by mistake.
pub(crate) fn note(
    request: &HttpRequest,
    idempotency: &Idempotency,
    operation: &'static Declaration,
    name: &str,
) {
    let application = std::ptr::from_ref(request.resource_map()).addr();
    let this = [application, idempotency.address(), std::ptr::from_ref(operation).addr()];
    if LAST.replace(this) != this {
        compare(request, idempotency, operation, name);
    }
}

fn compare(
    request: &HttpRequest,
    idempotency: &Idempotency,
    operation: &'static Declaration,
    name: &str,
) {
    SERVED.with_borrow_mut(|applications| {
        let served = applications.entry(request.resource_map()).or_default();
        let namespace = idempotency.namespace_of(operation);
        // An application whose handle is gone may have had its resources at the same address.
        let first = served.get_mut(name).filter(|first| first.handle.exists());
        if let Some(first) = first {
            if first.namespace == namespace {
                first.compare(idempotency, operation, name);
            }
        } else if served.len() < MOST {
            let (handle, origin) = (idempotency.identity(), idempotency.origin());
            let namespace = namespace.to_owned();
            let first = Served { operation, namespace, handle, origin, reported: false };
            served.insert(name.to_owned(), first);
        }
    });
}

impl Served {
    fn compare(&mut self, idempotency: &Idempotency, operation: &Declaration, name: &str) {
        let has_another_handler = !std::ptr::eq(self.operation, operation);
        if self.reported || !(has_another_handler || self.handle.is_another(idempotency)) {
            return;
        }
        self.reported = true;
        let mut reported = REPORTED.lock().unwrap_or_else(PoisonError::into_inner);
        if !reported.insert(name.to_owned()) {
            return;
        }
        drop(reported);
        let handler = self.operation.handler;
        if has_another_handler {
            let other = operation.handler;
            tracing::error!(
                name,
                handler,
                other,
                "two handlers are one operation, so that a key that was used at one of them is not \
                 free at the other, which may get its response; give each a `name` of its own, or \
                 give one handler both routes with `#[routes]`"
            );
        } else {
            let (handle, other) = (self.origin, idempotency.origin());
            tracing::warn!(
                name, handler, %handle, %other,
                "two `Idempotency` of one `App` serve one operation, so that a key that was used \
                 with one of them is new to the other; if that is meant, give each a namespace"
            );
        }
    }
}
