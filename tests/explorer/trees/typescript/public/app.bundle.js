export const app=1;class Bundled{}
