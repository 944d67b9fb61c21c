//! The sqllogictest adapter.
