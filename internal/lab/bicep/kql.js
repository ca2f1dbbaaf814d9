// Prints the errors that Microsoft's parser and type checker of KQL finds in the queries of a JSON file: {"name": "query"}.
require("@kusto/language-service-next/bridge.min.js");
require("@kusto/language-service-next/Kusto.Language.Bridge.min.js");
const { KustoCode, GlobalState, Symbols } = Kusto.Language;

// The columns that Microsoft documents.
const strings = ["_IsBillable", "_ResourceId", "_SubscriptionId", "ContainerAppName", "ContainerGroupId", "ContainerGroupName", "ContainerId", "ContainerImage",
  "ContainerName", "EnvironmentName", "JobName", "Location", "Log", "OperationName", "RevisionName", "SourceSystem", "Stream", "TenantId", "Type"];
const columns = ["TimeGenerated: datetime", "_BilledSize: real", ...strings.map(name => name + ": string")];
const table = Symbols.TableSymbol.From("(" + columns.join(", ") + ")").WithName("ContainerAppConsoleLogs");
const workspace = new Symbols.DatabaseSymbol.ctor("workspace", [table]);
const globals = GlobalState.Default.WithDatabase(workspace);

const errors = [];
for (const [name, query] of Object.entries(JSON.parse(require("fs").readFileSync(process.argv[2])))) {
  const found = KustoCode.ParseAndAnalyze(query, globals).GetDiagnostics();
  for (let i = 0; i < found.Count; i++) {
    const d = found.getItem(i);
    errors.push(`${name}: ${d.Message} (${query.substr(d.Start, d.Length)})`);
  }
}
console.log("errors: " + JSON.stringify(errors));
