// The page refers to its picture by a relative path, which rustdoc does not resolve. The
// definition in `pictures.md` comes first, so it takes precedence in rustdoc.
#![cfg_attr(doc, doc = include_str!("guide/pictures.md"))]
#![cfg_attr(all(feature = "sqlite", feature = "steps"), doc = include_str!("guide.md"))]
#![cfg_attr(
    not(all(feature = "sqlite", feature = "steps")),
    doc = "This page needs the features `sqlite` and `steps`."
)]
