//! Opens a store, and verifies what it needs of the servers.

mod privileges;
