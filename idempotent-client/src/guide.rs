// The page refers to its picture by a relative path, which rustdoc does not resolve. The
// definition in `pictures.md` comes first, so it takes precedence in rustdoc.
#![cfg_attr(doc, doc = include_str!("guide/pictures.md"))]
#![cfg_attr(feature = "sqlite", doc = include_str!("guide.md"))]
#![cfg_attr(not(feature = "sqlite"), doc = "This page needs the feature `sqlite`.")]
