//! Models held to what their own libraries say, and to what they promise of bad files and bad answers.

#[cfg(test)]
mod bert;
#[cfg(test)]
mod built_in;
#[cfg(test)]
mod classifier;
#[cfg(test)]
mod fixture;
#[cfg(test)]
#[cfg(feature = "hf")]
mod hf;
#[cfg(test)]
mod http;
#[cfg(test)]
mod linear;
#[cfg(test)]
mod tiny;
