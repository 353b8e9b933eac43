"""Archives: contents, formats, manifest, exports, load check, signature, SBOM, model store."""
