// Validates OpenAPI documents with @apidevtools/swagger-parser of the current directory.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(`${process.cwd()}/tools.js`);
const parser = pathToFileURL(require.resolve("@apidevtools/swagger-parser"));
const { default: SwaggerParser } = await import(parser);
for (const file of process.argv.slice(2)) {
  await SwaggerParser.validate(file);
}
