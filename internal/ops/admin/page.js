// Replaces the page's content every 5 s, unless the page is hidden or text is selected.
(() => {
	let asking = false;
	const refresh = async () => {
		if (asking || document.hidden || !getSelection().isCollapsed) return;
		asking = true;
		try {
			const answer = await fetch("/", { cache: "no-store", signal: AbortSignal.timeout(8000) });
			if (!answer.ok) throw new Error(answer.status);
			const next = new DOMParser().parseFromString(await answer.text(), "text/html");
			document.querySelector("main").replaceWith(next.querySelector("main"));
			document.title = next.title;
		} catch {
			document.querySelector("main").classList.add("old");
		}
		asking = false;
	};
	setInterval(refresh, 5000);
	document.addEventListener("visibilitychange", refresh);
})();
