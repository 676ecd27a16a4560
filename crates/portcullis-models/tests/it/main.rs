//! Models held to what their own libraries say.

mod fixture;

mod built_in;
